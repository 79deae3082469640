#!/bin/bash
# The runs of a lab's sweep as an array, one run each; `labs sweep LAB --sbatch` submits it with the right size.
#
#   labs sweep lab04_speedup --sbatch
#   sbatch --array=0-11 jobs/sweep.sh lab04_speedup            (`labs sweep lab04_speedup --list` shows the runs)
#SBATCH --job-name=sweep
#SBATCH --output=%x-%A_%a.out
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --exclusive
#SBATCH --time=01:00:00

# sbatch runs a copy of this file from a spool folder, so the clone is where sbatch was typed.
env=${SLURM_SUBMIT_DIR:-.}/jobs/env.sh
[ -f "$env" ] || { echo "labs: error: no $env; submit jobs/sweep.sh in the clone's top folder" >&2; exit 1; }
source "$env" || exit 1
refuse_late jobs/sweep.sh "$@"
labs sweep "$@" --cell "${SLURM_ARRAY_TASK_ID:?submit it with --array}"
