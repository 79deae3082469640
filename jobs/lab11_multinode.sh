#!/bin/bash
# Lab 11: the same training over several nodes; one task is one worker. All its runs: labs sweep lab11_multinode --preset paper --sbatch
#
#   sbatch jobs/lab11_multinode.sh
#   sbatch -N 8 --ntasks-per-node=1 jobs/lab11_multinode.sh --preset paper --batch-size 16
#   sbatch -N 2 --ntasks-per-node=3 --cpus-per-task=1 jobs/lab11_multinode.sh --preset paper
#   sbatch -N 2 --ntasks-per-node=4 --gpus-per-node=4 jobs/lab11_multinode.sh --preset paper --scaling sqrt
#SBATCH --job-name=lab11_multinode
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --time=00:30:00

# sbatch runs a copy of this file from a spool folder, so the clone is where sbatch was typed.
env=${SLURM_SUBMIT_DIR:-.}/jobs/env.sh
[ -f "$env" ] || { echo "labs: error: no $env; type \`sbatch jobs/lab11_multinode.sh\` in the clone's top folder" >&2; exit 1; }
source "$env" || exit 1
launch lab11_multinode "$@"
