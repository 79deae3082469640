#!/bin/bash
# Lab 8: images per second of three networks on faces; one task is one worker. All of it: labs sweep lab08_throughput --sbatch
#   sbatch jobs/lab08_throughput.sh
#   sbatch -N 8 --ntasks-per-node=4 --cpus-per-task=7 jobs/lab08_throughput.sh --preset paper --threads 7
#   sbatch -N 8 --ntasks-per-node=1 --gpus-per-node=1 jobs/lab08_throughput.sh --preset paper --batch-size 128
#SBATCH --job-name=lab08_throughput --output=%x-%j.out --open-mode=append --requeue --signal=B:USR1@120
#SBATCH --nodes=1 --ntasks-per-node=2 --cpus-per-task=2 --time=00:30:00
[ -f jobs/env.sh ] || { echo "labs: error: no jobs/env.sh in $PWD; type sbatch in the clone's top folder" >&2; exit 1; }
source jobs/env.sh || exit 1
launch lab08_throughput "$@"
