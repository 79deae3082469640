#!/bin/bash
# Make the report page from the results folder; after a sweep: sbatch --dependency=afterany:JOB jobs/report.sh
#SBATCH --job-name=report
#SBATCH --output=%x-%j.out
#SBATCH --ntasks=1
#SBATCH --time=00:10:00

env=${SLURM_SUBMIT_DIR:-.}/jobs/env.sh
[ -f "$env" ] || { echo "labs: error: no $env; submit jobs/report.sh in the clone's top folder" >&2; exit 1; }
source "$env" || exit 1
labs report "$@"
