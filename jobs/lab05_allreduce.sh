#!/bin/bash
# Lab 5: the collectives over message size; `--study traffic` counts what training sends; one task is one worker.
#   sbatch jobs/lab05_allreduce.sh
#   sbatch --gpus-per-node=4 --ntasks-per-node=4 jobs/lab05_allreduce.sh --preset paper
#SBATCH --job-name=lab05_allreduce --output=%x-%j.out --open-mode=append --requeue --signal=B:USR1@120
#SBATCH --nodes=1 --ntasks-per-node=2 --cpus-per-task=2 --time=00:30:00
[ -f jobs/env.sh ] || { echo "labs: error: no jobs/env.sh in $PWD; type sbatch in the clone's top folder" >&2; exit 1; }
source jobs/env.sh || exit 1
launch lab05_allreduce "$@"
