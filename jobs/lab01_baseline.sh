#!/bin/bash
# Lab 1: one worker on MNIST, the baseline that every speedup is measured against.
#   sbatch jobs/lab01_baseline.sh
#   sbatch --gpus-per-node=1 jobs/lab01_baseline.sh --preset paper
#SBATCH --job-name=lab01_baseline --output=%x-%j.out --open-mode=append --requeue --signal=B:USR1@120
#SBATCH --nodes=1 --ntasks-per-node=1 --cpus-per-task=2 --time=00:30:00
[ -f jobs/env.sh ] || { echo "labs: error: no jobs/env.sh in $PWD; type sbatch in the clone's top folder" >&2; exit 1; }
source jobs/env.sh || exit 1
launch lab01_baseline "$@"
