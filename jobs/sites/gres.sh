# shellcheck shell=bash
# Example: a site whose GPUs are a generic resource (--gres), with a partition for them and no accounts.
#
#   source jobs/sites/gres.sh                  # on the login node, once per shell or in ~/.bashrc
#   labs queue --check --gres=gpu:2 jobs/lab02_horovod.sh
#   sbatch --gres=gpu:2 jobs/lab02_horovod.sh

# --- For sbatch. A GPU for each task: --gres=gpu:4 goes with --ntasks-per-node=4.
export SBATCH_PARTITION=gpu

# --- For the jobs, which source this file by its name (jobs/env.sh).
export LABS_SITE=gres
LAUNCHER=mpirun
# export NCCL_SOCKET_IFNAME=ib0 OMPI_MCA_btl_tcp_if_include=ib0    # Nodes with several networks.
