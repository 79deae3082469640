#!/bin/bash
# Lab 0: template; one task is one worker.
#
#   sbatch jobs/lab00_template.sh
#   sbatch --gpus-per-node=4 --ntasks-per-node=4 jobs/lab00_template.sh --preset paper
#SBATCH --job-name=lab00_template
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
[ -f "$env" ] || { echo "labs: error: no $env; type \`sbatch jobs/lab00_template.sh\` in the clone's top folder" >&2; exit 1; }
source "$env" || exit 1
launch lab00_template "$@"
