#!/bin/bash
# Lab 4: speedup and where the time goes; one task is one worker. All of it: labs sweep lab04_speedup --sbatch
#   sbatch jobs/lab04_speedup.sh
#   sbatch -N 2 --gpus-per-node=4 --ntasks-per-node=4 jobs/lab04_speedup.sh --preset paper
#SBATCH --job-name=lab04_speedup --output=%x-%j.out --open-mode=append --requeue --signal=B:USR1@120
#SBATCH --nodes=1 --ntasks-per-node=2 --cpus-per-task=2 --time=00:30:00
[ -f jobs/env.sh ] || { echo "labs: error: no jobs/env.sh in $PWD; type sbatch in the clone's top folder" >&2; exit 1; }
source jobs/env.sh || exit 1
launch lab04_speedup "$@"
