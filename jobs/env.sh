# shellcheck shell=bash
# The site-specific file, with sites/*.sh: every job sources it on its first node. Partition and account are not here:
# put `export SBATCH_PARTITION=... SBATCH_ACCOUNT=...` into your ~/.bashrc (docs/cluster.md).

# --- Only inside Slurm: `bash jobs/lab10_caltech.sh` would train on the login node, which all users share.
if [ -z "${SLURM_JOB_ID:-}" ]; then
    echo "labs: error: not in a Slurm job; \`sbatch $0\` submits it, and \`labs --help\` shows what runs here" >&2
    return 1
fi

clone=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# --- Site: jobs/sites/NAME.sh holds the settings of a site, for sbatch and for its jobs; there are three examples.
# `source jobs/sites/NAME.sh` on the login node sets LABS_SITE; with `sbatch --export=NONE` set it here.
LAUNCHER=mpirun
# LABS_SITE=teaching
if [ -n "${LABS_SITE:-}" ]; then
    source "$clone/jobs/sites/$LABS_SITE.sh" || return 1
fi

# --- Modules: your site's names for Python, CUDA and, after `make env MPI=system`, its own MPI.
# module purge
# module load python/3.13 openmpi/5.0

# --- The environment: the clone's, which `make env` makes, or LABS_ENV from the site's file: the folder of another venv,
# or the name or folder of a conda environment.
environment=${LABS_ENV:-$clone/.venv}
if [ -f "$environment/bin/activate" ] && [ -x "$environment/bin/labs" ]; then
    source "$environment/bin/activate"
elif [ -z "${LABS_ENV:-}" ]; then
    echo "labs: error: no $clone/.venv/bin/labs; run \`make env\` in $clone first" >&2
    return 1
elif ! { eval "$("${CONDA_EXE:-conda}" shell.bash hook)" && conda activate "$LABS_ENV" \
    && [ -x "$CONDA_PREFIX/bin/labs" ]; }; then
    echo "labs: error: LABS_ENV is '$LABS_ENV'; choose a venv or a conda environment in which \`labs\` is installed" >&2
    return 1
fi

# --- Launcher: mpirun finds the allocation's nodes by itself. LAUNCHER=srun, in a site's file, is for sites whose Slurm
# supports the PMI of the site's MPI (`srun --mpi=list`); elsewhere the workers stop with an error. LABS_LAUNCHER in the
# environment overrides it.
launch() { # LAB [OPTIONS ...]
    refuse_late "jobs/$1.sh" "${@:2}"
    # All starts of the job have the same run name, so that the next start finds what this one saved.
    case " $* " in *" --name"[\ =]* | *" --resume "*) ;; *) set -- "$@" --name "$1-$SLURM_JOB_ID" ;; esac
    [ "${SLURM_RESTART_COUNT:-0}" = 0 ] || set -- "$@" --resume
    trap again USR1
    if [ "${LABS_LAUNCHER:-$LAUNCHER}" = srun ]; then
        srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" python -m "labs.$1" "${@:2}" &
    else
        labs run "$@" &
    fi
    run=$!
    wait "$run" # The run is in the background: a shell handles a signal only when no foreground program runs.
}

# sbatch reads only the options before the file; those after it are the lab's.
refuse_late() { # FILE [WORDS ...]
    local word
    for word in "${@:2}"; do
        case $word in
            -[[:alpha:]]* | --nodes* | --ntasks* | --cpus-per* | --gpus* | --gres* | --mem | --mem[=-]* | --time | --time=* | --partition* | --account*)
                echo "labs: error: sbatch's options go before the file: \`sbatch $word ... $1\`" >&2
                exit 1 ;;
        esac
    done
}

# --- Preemption: shortly before the time limit (#SBATCH --signal) Slurm sends USR1 to the job. The run saves after the
# current step, the job is requeued, and its next start resumes from there.
again() {
    trap '' USR1
    kill -USR1 "$run"
    wait "$run" && exit 0 # The run has finished.
    if [ "${SLURM_RESTART_COUNT:-0}" -ge "${LABS_REQUEUES:=20}" ]; then
        echo "labs: error: the time limit is near after $LABS_REQUEUES requeues; ask for more time (--time) and add" \
            "--resume, or raise LABS_REQUEUES" >&2
        exit 1
    fi
    # The job number of one array task is that of the array, and would requeue all tasks.
    local job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
    job=${job:-$SLURM_JOB_ID}
    echo "labs: the time limit is near: job $job goes back into the queue and will continue from its checkpoint" >&2
    scontrol requeue "$job" && sleep 60 # Slurm ends this script when the job is back in the queue.
    exit 1
}

# --- With `sbatch --export=NONE` (some sites' default) the other nodes would not get the variables above.
export SLURM_EXPORT_ENV=ALL

# --- Containers: Open MPI refuses to run as root without both variables.
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# --- Networks: name yours if nodes have several and workers hang at the start.
# export OMPI_MCA_btl_tcp_if_include=ib0 NCCL_SOCKET_IFNAME=ib0
