#!/bin/bash
# Lab 13: other ways to exchange; `--study frameworks` takes the same steps in other frameworks; one task is one worker.
#
#   sbatch jobs/lab13_elsewhere.sh
#   sbatch jobs/lab13_elsewhere.sh --study frameworks
#   sbatch --gpus-per-node=4 --ntasks-per-node=4 jobs/lab13_elsewhere.sh --preset paper
#SBATCH --job-name=lab13_elsewhere
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
[ -f "$env" ] || { echo "labs: error: no $env; type \`sbatch jobs/lab13_elsewhere.sh\` in the clone's top folder" >&2; exit 1; }
source "$env" || exit 1
launch lab13_elsewhere "$@"
