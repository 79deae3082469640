#!/bin/bash
# The runs of a lab's sweep as an array, one run each; `labs sweep LAB --sbatch` submits it with the right size.
#   labs sweep lab04_speedup --sbatch
#   sbatch --array=0-11 jobs/sweep.sh lab04_speedup            (`labs sweep lab04_speedup --list` shows the runs)
#SBATCH --job-name=sweep --output=%x-%A_%a.out
#SBATCH --nodes=1 --ntasks-per-node=2 --exclusive --time=01:00:00
source jobs/env.sh || exit 1
labs sweep "$@" --cell "${SLURM_ARRAY_TASK_ID:?submit it with --array}"
