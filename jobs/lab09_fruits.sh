#!/bin/bash
# Lab 9: a fruit classifier on several workers; one task is one worker. The search: --ntasks-per-node=1, --trials 12
#   sbatch jobs/lab09_fruits.sh
#   sbatch -N 2 --gpus-per-node=4 --ntasks-per-node=4 jobs/lab09_fruits.sh --preset paper
#SBATCH --job-name=lab09_fruits --output=%x-%j.out --open-mode=append --requeue --signal=B:USR1@120
#SBATCH --nodes=1 --ntasks-per-node=2 --cpus-per-task=2 --time=00:30:00
[ -f jobs/env.sh ] || { echo "labs: error: no jobs/env.sh in $PWD; type sbatch in the clone's top folder" >&2; exit 1; }
source jobs/env.sh || exit 1
launch lab09_fruits "$@"
