#!/bin/bash
# Make the report page from the results folder; after a sweep: sbatch --dependency=afterany:JOB jobs/report.sh
#SBATCH --job-name=report --output=%x-%j.out --ntasks=1 --time=00:10:00
source jobs/env.sh || exit 1
labs report "$@"
