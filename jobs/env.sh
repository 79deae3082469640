# shellcheck shell=bash
# The only site-specific file: every job sources it on its first node, before its one line. Partition and account are
# not here: put `export SBATCH_PARTITION=... SBATCH_ACCOUNT=...` into your ~/.bashrc (docs/cluster.md).

# --- Modules: what your site calls Python 3.11, CUDA and, after `make env MPI=system`, its own MPI.
# module purge
# module load python/3.11 cuda/12.2 openmpi/5.0

# --- The clone's environment. Unlike the job file, this file is not copied by sbatch: it knows where it lies.
# With conda (environment.yml), put this in its place: source ~/miniconda3/etc/profile.d/conda.sh; conda activate labs
clone=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ ! -x "$clone/.venv/bin/labs" ]; then
    echo "labs: error: no $clone/.venv/bin/labs; run \`make env\` in $clone first" >&2
    return 1
fi
source "$clone/.venv/bin/activate"

# --- Launcher: LABS_LAUNCHER=mpirun finds the allocation's nodes by itself. LABS_LAUNCHER=srun is for sites whose Slurm
# speaks the PMI of their own MPI; its name is in `srun --mpi=list`.
# export LABS_LAUNCHER=srun SLURM_MPI_TYPE=pmix
launch() { # LAB [OPTIONS ...]
    case ${LABS_LAUNCHER:-mpirun} in
        mpirun) labs run "$@" ;;
        srun) srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" python -m "labs.$1" "${@:2}" ;;
        *) echo "labs: error: LABS_LAUNCHER is '$LABS_LAUNCHER'; choose mpirun or srun" >&2; return 1 ;;
    esac
}

# --- With `sbatch --export=NONE` (some sites' default) the other nodes would get none of the above.
export SLURM_EXPORT_ENV=ALL

# --- Containers: Open MPI refuses to run as root unless it is told twice.
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# --- Networks: name yours if nodes have several and workers hang at the start.
# export OMPI_MCA_btl_tcp_if_include=ib0 NCCL_SOCKET_IFNAME=ib0
