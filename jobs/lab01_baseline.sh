#!/bin/bash
# Lab 1: one worker on MNIST, the baseline that every speedup is measured against.
#
#   sbatch jobs/lab01_baseline.sh
#   sbatch --gpus-per-node=1 jobs/lab01_baseline.sh --preset paper
#SBATCH --job-name=lab01_baseline
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
[ -f "$env" ] || { echo "labs: error: no $env; type \`sbatch jobs/lab01_baseline.sh\` in the clone's top folder" >&2; exit 1; }
source "$env" || exit 1
launch lab01_baseline "$@"
