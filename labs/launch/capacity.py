"""How many workers this machine or this allocation has the cores and GPUs for."""

from __future__ import annotations

from labs.launch import mpirun
from labs.run import allocation, resources, slurm, terminal
from labs.run.errors import LabError
from labs.run.text import plural


def choose_workers(requested: int | None, oversubscribe: bool) -> int:
    """Return the number of workers to start: as requested, else the allocation's tasks, else one per visible GPU.

    Args:
        requested: The value of --workers, or None.
        oversubscribe: Allow more workers than cores.

    Raises:
        LabError: The request is below one or beyond what there is.
    """
    if requested is not None and requested < 1:
        raise LabError(f"--workers {requested}: a run needs at least one")
    granted = allocation.current()
    if granted:
        allocation.check_step()
        if advice := allocation.advice(granted) or _unused_gpus(granted):
            terminal.note(advice)
        return allocation.workers(granted, requested)
    workers = visible_gpus() or 1 if requested is None else requested
    if not oversubscribe:
        check_slots(workers)
    return workers


def unused_cores(workers: int) -> str:
    """Return one line on cores that a run of the default number of workers leaves idle, or an empty string."""
    free = 0 if allocation.current() or visible_gpus() else slots()
    cores = "both cores" if free == 2 else f"all {free} cores"
    return f"{plural(workers, 'worker')}; `--workers {free}` uses {cores}" if workers < free else ""


def _unused_gpus(granted: allocation.Allocation) -> str:
    """Return one line on GPUs that the job's nodes have but the job did not request, or an empty string."""
    gpus = slurm.gpus_of_nodes(granted.node_list) if granted.gpus_per_node == 0 else 0
    if gpus == 0:
        return ""
    return (f"each node of this job has {plural(gpus, 'GPU')}, but the job asked for none and trains on CPUs; "
            f"to use them: sbatch --gpus-per-node={gpus} --ntasks-per-node={gpus}")


def slots() -> int:
    """Return how many workers fit: one per core, per CPU that Slurm granted, or per slot of a host file."""
    granted = allocation.current()
    if granted:
        return granted.ntasks * granted.cpus_per_task
    return sum(mpirun.host_slots().values()) or resources.cores()


def check_slots(workers: int) -> None:
    """Refuse more workers than cores.

    Raises:
        LabError: The workers are too many; the message names the number that fits and the option that overrides it.
    """
    if workers > slots():
        quota = "" if allocation.current() or mpirun.host_slots() else resources.describe_quota()
        raise LabError(f"{workers} workers on {plural(slots(), 'core')}{quota} would wait for each other; "
                       f"ask for at most {slots()}, or add --oversubscribe")


def visible_gpus() -> int:
    """Return how many GPUs the driver has for a worker, without loading TensorFlow."""
    return len(resources.gpus())
