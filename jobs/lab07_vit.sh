#!/bin/bash
# Lab 7: a vision transformer; one task is one worker. All of it, and the crossover: labs sweep lab07_vit --sbatch
#   sbatch jobs/lab07_vit.sh
#   sbatch jobs/lab07_vit.sh --backend gloo
#   sbatch --ntasks-per-node=2 --gpus-per-node=2 jobs/lab07_vit.sh --preset paper
#SBATCH --job-name=lab07_vit --output=%x-%j.out --open-mode=append --requeue --signal=B:USR1@120
#SBATCH --nodes=1 --ntasks-per-node=2 --cpus-per-task=2 --time=00:30:00
[ -f jobs/env.sh ] || { echo "labs: error: no jobs/env.sh in $PWD; type sbatch in the clone's top folder" >&2; exit 1; }
source jobs/env.sh || exit 1
launch lab07_vit "$@"
