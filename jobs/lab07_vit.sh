#!/bin/bash
# Lab 7: a vision transformer; one task is one worker. All of it, and the crossover: labs sweep lab07_vit --sbatch
#
#   sbatch jobs/lab07_vit.sh
#   sbatch jobs/lab07_vit.sh --backend gloo
#   sbatch --ntasks-per-node=2 --gpus-per-node=2 jobs/lab07_vit.sh --preset paper
#SBATCH --job-name=lab07_vit
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
[ -f "$env" ] || { echo "labs: error: no $env; type \`sbatch jobs/lab07_vit.sh\` in the clone's top folder" >&2; exit 1; }
source "$env" || exit 1
launch lab07_vit "$@"
