#!/bin/bash
# Your own script, or one of examples/, with its arguments; one task is one worker.
#   sbatch jobs/example.sh examples/lab02_horovod.py
#   sbatch --nodes=2 --gpus-per-node=4 --ntasks-per-node=4 jobs/example.sh train.py --epochs 40
#SBATCH --job-name=example --output=%x-%j.out --open-mode=append --requeue
#SBATCH --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --time=00:30:00
[ -f jobs/env.sh ] || { echo "labs: error: no jobs/env.sh in $PWD; type sbatch in the clone's top folder" >&2; exit 1; }
source jobs/env.sh || exit 1
refuse_late jobs/example.sh "${@:1:1}"
[ -f "${1:-}" ] || { echo "labs: error: no file '${1:-}'; type \`sbatch jobs/example.sh FILE\`" >&2; exit 1; }
if [ "${LABS_LAUNCHER:-$LAUNCHER}" = srun ]; then
    srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" python "$@"
else
    mpirun --bind-to none python "$@" # It starts one worker per task of the job, on all of its nodes.
fi
