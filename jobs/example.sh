#!/bin/bash
# Your own script, or one of examples/, with its arguments; one task is one worker.
#
#   sbatch jobs/example.sh examples/lab02_horovod.py
#   sbatch --nodes=2 --gpus-per-node=4 --ntasks-per-node=4 jobs/example.sh train.py --epochs 40
#SBATCH --job-name=example
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=00:30:00

# sbatch runs a copy of this file from a spool folder, so the clone is where sbatch was typed.
env=${SLURM_SUBMIT_DIR:-.}/jobs/env.sh
[ -f "$env" ] || { echo "labs: error: no $env; type \`sbatch jobs/example.sh FILE\` in the clone's top folder" >&2; exit 1; }
source "$env" || exit 1
[ -f "${1:-}" ] || refuse_late jobs/example.sh "$@"
[ -f "${1:-}" ] || { echo "labs: error: no file '${1:-}'; type \`sbatch jobs/example.sh FILE\`" >&2; exit 1; }
case ${LABS_LAUNCHER:-$LAUNCHER} in
    mpirun) mpirun --bind-to none python "$@" ;; # It starts one worker per task of the job, on all of its nodes.
    srun) srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" python "$@" ;;
    *) echo "labs: error: LAUNCHER is '${LABS_LAUNCHER:-$LAUNCHER}'; choose mpirun or srun" >&2; exit 1 ;;
esac
