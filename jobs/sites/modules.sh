# shellcheck shell=bash
# Example: a site with --gpus-per-node, accounts, modules, and its own MPI, which its srun supports.
# The environment was built with that MPI: module load ... && make env MPI=system
#
#   source jobs/sites/modules.sh               # on the login node, once per shell or in ~/.bashrc
#   labs queue --check --gpus-per-node=2 jobs/lab02_horovod.sh
#   sbatch --gpus-per-node=2 jobs/lab02_horovod.sh

# --- For sbatch. A GPU for each task: --gpus-per-node=4 goes with --ntasks-per-node=4.
export SBATCH_PARTITION=batch SBATCH_ACCOUNT=ml101

# --- For the jobs, which source this file by its name (jobs/env.sh). `srun --mpi=list` lists the alternatives to pmix.
export LABS_SITE=modules
export SLURM_MPI_TYPE=pmix
LAUNCHER=srun
# LABS_ENV=labs    # A conda environment (environment.yml) instead of the clone's .venv; or the folder of a venv.
if [ -n "${SLURM_JOB_ID:-}" ]; then
    module purge
    module load python/3.13 cuda/12.9 openmpi/5.0
fi
