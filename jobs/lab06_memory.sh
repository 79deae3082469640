#!/bin/bash
# Lab 6: how deep and wide a denoiser fits; one task is one worker. Its table: labs sweep lab06_memory --sbatch
#   sbatch jobs/lab06_memory.sh --depth 16 --width 32
#   sbatch jobs/lab06_memory.sh --search width
#   sbatch --ntasks-per-node=2 --gpus-per-node=2 jobs/lab06_memory.sh --preset paper
#SBATCH --job-name=lab06_memory --output=%x-%j.out --open-mode=append --requeue --signal=B:USR1@120
#SBATCH --nodes=1 --ntasks-per-node=1 --cpus-per-task=2 --time=00:30:00
[ -f jobs/env.sh ] || { echo "labs: error: no jobs/env.sh in $PWD; type sbatch in the clone's top folder" >&2; exit 1; }
source jobs/env.sh || exit 1
launch lab06_memory "$@"
