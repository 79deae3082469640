#!/bin/bash
# Lab 13: other ways to exchange; `--study frameworks` takes the same steps in other frameworks; one task is one worker.
#   sbatch jobs/lab13_elsewhere.sh
#   sbatch jobs/lab13_elsewhere.sh --study frameworks
#   sbatch --gpus-per-node=4 --ntasks-per-node=4 jobs/lab13_elsewhere.sh --preset paper
#SBATCH --job-name=lab13_elsewhere --output=%x-%j.out --open-mode=append --requeue --signal=B:USR1@120
#SBATCH --nodes=1 --ntasks-per-node=2 --cpus-per-task=2 --time=00:30:00
[ -f jobs/env.sh ] || { echo "labs: error: no jobs/env.sh in $PWD; type sbatch in the clone's top folder" >&2; exit 1; }
source jobs/env.sh || exit 1
launch lab13_elsewhere "$@"
