#!/bin/bash
# Lab 6: how deep and wide a denoiser fits; one task is one worker. Its table: labs sweep lab06_memory --sbatch
#
#   sbatch jobs/lab06_memory.sh --depth 16 --width 32
#   sbatch jobs/lab06_memory.sh --search width
#   sbatch --ntasks-per-node=2 --gpus-per-node=2 jobs/lab06_memory.sh --preset paper
#SBATCH --job-name=lab06_memory
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --time=00:30:00

# sbatch runs a copy of this file from a spool folder, so the clone is where sbatch was typed.
env=${SLURM_SUBMIT_DIR:-.}/jobs/env.sh
[ -f "$env" ] || { echo "labs: error: no $env; type \`sbatch jobs/lab06_memory.sh\` in the clone's top folder" >&2; exit 1; }
source "$env" || exit 1
launch lab06_memory "$@"
