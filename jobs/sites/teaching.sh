# shellcheck shell=bash
# Example: a teaching partition without GPUs, where short jobs start soon.
#
#   source jobs/sites/teaching.sh              # on the login node, once per shell or in ~/.bashrc
#   labs queue --check -N 2 jobs/lab02_horovod.sh
#   sbatch -N 2 jobs/lab02_horovod.sh

# --- For sbatch. The limit overrides the job files'; --time on the command line overrides both.
export SBATCH_PARTITION=teaching SBATCH_TIMELIMIT=00:20:00

# --- For the jobs, which source this file by its name (jobs/env.sh).
export LABS_SITE=teaching
LAUNCHER=mpirun
export CUDA_VISIBLE_DEVICES=""    # TensorFlow does not look for GPUs.
