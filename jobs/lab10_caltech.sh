#!/bin/bash
# Lab 10: Caltech256 with a validation split; one task is one worker.
#   sbatch jobs/lab10_caltech.sh
#   sbatch -N 2 jobs/lab10_caltech.sh --preset paper --data DIR
#   sbatch -N 2 --gpus-per-node=4 --ntasks-per-node=4 --time=04:00:00 jobs/lab10_caltech.sh --preset paper
#SBATCH --job-name=lab10_caltech --output=%x-%j.out --open-mode=append --requeue --signal=B:USR1@120
#SBATCH --nodes=1 --ntasks-per-node=1 --cpus-per-task=2 --time=00:30:00
[ -f jobs/env.sh ] || { echo "labs: error: no jobs/env.sh in $PWD; type sbatch in the clone's top folder" >&2; exit 1; }
source jobs/env.sh || exit 1
launch lab10_caltech "$@"
