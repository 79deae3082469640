#!/bin/bash
# Lab 8: images per second of three networks on faces; one task is one worker. All of it: labs sweep lab08_throughput --sbatch
#
#   sbatch jobs/lab08_throughput.sh
#   sbatch -N 8 --ntasks-per-node=4 --cpus-per-task=7 jobs/lab08_throughput.sh --preset paper --threads 7
#   sbatch -N 8 --ntasks-per-node=1 --gpus-per-node=1 jobs/lab08_throughput.sh --preset paper --batch-size 128
#SBATCH --job-name=lab08_throughput
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=2
#SBATCH --time=00:30:00

# sbatch runs a copy of this file from a spool folder, so the clone is where sbatch was typed.
env=${SLURM_SUBMIT_DIR:-.}/jobs/env.sh
[ -f "$env" ] || { echo "labs: error: no $env; type \`sbatch jobs/lab08_throughput.sh\` in the clone's top folder" >&2; exit 1; }
source "$env" || exit 1
launch lab08_throughput "$@"
