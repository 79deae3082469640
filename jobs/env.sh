# shellcheck shell=bash
# The only site-specific file: every job sources it on its first node, before its one line. Partition and account are
# not here: put `export SBATCH_PARTITION=... SBATCH_ACCOUNT=...` into your ~/.bashrc (docs/cluster.md).

# --- Modules: what your site calls Python 3.11, CUDA and, if you build Horovod against it, its own MPI.
# module purge
# module load python/3.11 cuda/12.2 openmpi/5.0

# --- The clone's virtual environment. Unlike the job file, this file is not copied by sbatch: it knows where it lies.
clone=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ ! -x "$clone/.venv/bin/labs" ]; then
    echo "labs: error: no $clone/.venv/bin/labs; run \`make env\` in $clone first" >&2
    return 1
fi
source "$clone/.venv/bin/activate"

# --- Launcher: mpirun finds the allocation's nodes by itself. srun only where the site's Slurm and MPI share a PMI.
export LABS_LAUNCHER=${LABS_LAUNCHER:-mpirun}

# --- With `sbatch --export=NONE` (some sites' default) the other nodes would get none of the above.
export SLURM_EXPORT_ENV=ALL

# --- Containers: Open MPI refuses to run as root unless it is told twice.
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# --- Networks: name yours if nodes have several and workers hang at the start.
# export OMPI_MCA_btl_tcp_if_include=ib0 NCCL_SOCKET_IFNAME=ib0
