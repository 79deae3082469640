#!/bin/bash
# Lab 12: what a dead worker costs, with a checkpoint and with elastic Horovod; one task is one worker, on one node.
#   sbatch jobs/lab12_elastic.sh
#   sbatch --gpus-per-node=4 --ntasks-per-node=4 jobs/lab12_elastic.sh --preset paper
#SBATCH --job-name=lab12_elastic --output=%x-%j.out --open-mode=append --requeue --signal=B:USR1@120
#SBATCH --nodes=1 --ntasks-per-node=2 --cpus-per-task=2 --time=00:30:00
[ -f jobs/env.sh ] || { echo "labs: error: no jobs/env.sh in $PWD; type sbatch in the clone's top folder" >&2; exit 1; }
source jobs/env.sh || exit 1
launch lab12_elastic "$@"
