#!/bin/bash
# Lab 12: what a dead worker costs, with a checkpoint and with elastic Horovod; one task is one worker, on one node.
#
#   sbatch jobs/lab12_elastic.sh
#   sbatch --gpus-per-node=4 --ntasks-per-node=4 jobs/lab12_elastic.sh --preset paper
#SBATCH --job-name=lab12_elastic
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
[ -f "$env" ] || { echo "labs: error: no $env; type \`sbatch jobs/lab12_elastic.sh\` in the clone's top folder" >&2; exit 1; }
source "$env" || exit 1
launch lab12_elastic "$@"
