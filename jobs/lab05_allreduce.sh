#!/bin/bash
# Lab 5: the collectives over message size; `--study traffic` counts what training sends; one task is one worker.
#
#   sbatch jobs/lab05_allreduce.sh
#   sbatch --gpus-per-node=4 --ntasks-per-node=4 jobs/lab05_allreduce.sh --preset paper
#SBATCH --job-name=lab05_allreduce
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
[ -f "$env" ] || { echo "labs: error: no $env; type \`sbatch jobs/lab05_allreduce.sh\` in the clone's top folder" >&2; exit 1; }
source "$env" || exit 1
launch lab05_allreduce "$@"
