#!/bin/bash
# Lab 10: Caltech256 with a validation split; one task is one worker.
#
#   sbatch jobs/lab10_caltech.sh
#   sbatch -N 2 jobs/lab10_caltech.sh --preset paper --data DIR
#   sbatch -N 2 --gpus-per-node=4 --ntasks-per-node=4 --time=04:00:00 jobs/lab10_caltech.sh --preset paper
#SBATCH --job-name=lab10_caltech
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
[ -f "$env" ] || { echo "labs: error: no $env; type \`sbatch jobs/lab10_caltech.sh\` in the clone's top folder" >&2; exit 1; }
source "$env" || exit 1
launch lab10_caltech "$@"
