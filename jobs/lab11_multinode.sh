#!/bin/bash
# Lab 11: the same training over several nodes; one task is one worker. All its runs: labs sweep lab11_multinode --preset paper --sbatch
#   sbatch jobs/lab11_multinode.sh
#   sbatch -N 8 --ntasks-per-node=1 jobs/lab11_multinode.sh --preset paper --batch-size 16
#   sbatch -N 2 --ntasks-per-node=3 --cpus-per-task=1 jobs/lab11_multinode.sh --preset paper
#   sbatch -N 2 --ntasks-per-node=4 --gpus-per-node=4 jobs/lab11_multinode.sh --preset paper --scaling sqrt
#SBATCH --job-name=lab11_multinode --output=%x-%j.out --open-mode=append --requeue --signal=B:USR1@120
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=2 --time=00:30:00
[ -f jobs/env.sh ] || { echo "labs: error: no jobs/env.sh in $PWD; type sbatch in the clone's top folder" >&2; exit 1; }
source jobs/env.sh || exit 1
launch lab11_multinode "$@"
