"""The allocation of this Slurm job, read from its environment. Imports no TensorFlow and runs no command."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from labs.run.errors import LabError
from labs.run.text import plural


@dataclass(frozen=True)
class Allocation:
    """A job's share of the cluster."""

    job_id: str
    node_list: str  # As Slurm writes it: "node[1-2]".
    ntasks_per_node: tuple[int, ...]  # One number per node, in the order of node_list.
    cpus_per_task: int
    gpus_per_node: int

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.ntasks_per_node)

    @property
    def ntasks(self) -> int:
        """The number of tasks on all nodes."""
        return sum(self.ntasks_per_node)


def current(environ: Mapping[str, str] = os.environ) -> Allocation | None:
    """Return the allocation that this process runs in, or None outside of Slurm.

    Raises:
        LabError: The SLURM_* variables cannot be read or contradict each other, or mpirun would not see all nodes.
    """
    if "SLURM_JOB_ID" not in environ:
        return None
    if _number("SLURM_HET_SIZE", environ, 1) > 1:
        raise LabError(f"job {environ['SLURM_JOB_ID']} is heterogeneous ({environ['SLURM_HET_SIZE']} parts), and "
                       "mpirun sees only its first part; submit it as one part")
    # Always set, unlike SLURM_NTASKS, and what mpirun itself uses.
    tasks = _per_node("SLURM_TASKS_PER_NODE", environ)
    nodes = _number("SLURM_JOB_NUM_NODES", environ, len(tasks))
    if nodes != len(tasks):
        raise _unreadable("SLURM_TASKS_PER_NODE", environ, f"the job has {plural(nodes, 'node')}")
    return Allocation(
        job_id=environ["SLURM_JOB_ID"],
        node_list=environ.get("SLURM_JOB_NODELIST", ""),
        ntasks_per_node=tasks,
        cpus_per_task=_cpus_per_task(tasks, environ),
        gpus_per_node=_gpus_per_node(tasks, environ),
    )


def workers(granted: Allocation, requested: int | None) -> int:
    """Return how many workers to start: as many as requested, else one per task.

    Raises:
        LabError: The allocation has fewer CPUs than the requested workers.
    """
    cpus = granted.ntasks * granted.cpus_per_task
    if requested is not None and not 1 <= requested <= cpus:
        raise LabError(
            f"--workers {requested}, but job {granted.job_id} has {plural(cpus, 'CPU')} for workers on "
            f"{plural(granted.nodes, 'node')}; choose another number, or ask for more: "
            "sbatch -N NODES --ntasks-per-node=WORKERS"
        )
    return requested or granted.ntasks


def advice(granted: Allocation) -> str:
    """Return one line on GPUs that would stand idle or be shared, or an empty string."""
    tasks, gpus = max(granted.ntasks_per_node), granted.gpus_per_node
    if gpus in (0, tasks):
        return ""
    trouble = f"{gpus - tasks} will stand idle" if gpus > tasks else "workers will share one"
    return (
        f"{plural(gpus, 'GPU')} and {plural(tasks, 'worker')} per node: {trouble}; "
        f"sbatch --ntasks-per-node={gpus} gives each GPU one worker"
    )


def check_step(environ: Mapping[str, str] = os.environ) -> None:
    """Raise if srun started several tasks that MPI did not join: each would silently train alone.

    For the launcher, and for a worker whose `hvd.size()` is 1.

    Raises:
        LabError: srun started several tasks without MPI; the message names the command that works.
    """
    tasks = _number("SLURM_STEP_NUM_TASKS", environ, 1)
    # mpirun's workers inherit the variables of the srun step that started its daemons.
    if tasks > 1 and "OMPI_COMM_WORLD_SIZE" not in environ:
        raise LabError(
            f"srun started {tasks} tasks that MPI did not join, each would train alone; "
            "use `labs run` without srun: its mpirun finds the allocation's nodes by itself"
        )


def _cpus_per_task(tasks: tuple[int, ...], environ: Mapping[str, str]) -> int:
    """Return the CPUs of a task: as requested, else the node's CPUs divided by its tasks."""
    if "SLURM_CPUS_PER_TASK" in environ:
        return _number("SLURM_CPUS_PER_TASK", environ, 1)
    if "SLURM_JOB_CPUS_PER_NODE" not in environ:
        return 1
    cpus = _per_node("SLURM_JOB_CPUS_PER_NODE", environ)
    return max(1, min(c // t for c, t in zip(cpus, tasks, strict=False)))


def _gpus_per_node(tasks: tuple[int, ...], environ: Mapping[str, str]) -> int:
    """Return the job's GPUs on this node; where only the request is known, those that it has on each node."""
    if "SLURM_GPUS_ON_NODE" in environ:
        return _number("SLURM_GPUS_ON_NODE", environ, 0)
    if "SLURM_GPUS_PER_NODE" in environ:
        return typed_gpus(environ["SLURM_GPUS_PER_NODE"])
    if "SLURM_GPUS" in environ:
        return -(-typed_gpus(environ["SLURM_GPUS"]) // len(tasks))
    per_task = typed_gpus(environ.get("SLURM_GPUS_PER_TASK", "")) or gpus(
        environ.get("SLURM_TRES_PER_TASK", ""))
    return per_task * max(tasks)


def _number(name: str, environ: Mapping[str, str], default: int) -> int:
    """Return the whole number in a variable, or `default` if it is not set."""
    if name not in environ:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", environ[name]):
        raise _unreadable(name, environ, "it should be a whole number")
    return int(environ[name])


def _per_node(name: str, environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return one number per node from Slurm's short form: "2(x3),1" is (2, 2, 2, 1)."""
    counts: list[int] = []
    for part in environ.get(name, "").split(","):
        match = re.fullmatch(r"([1-9][0-9]{0,5})(?:\(x([1-9][0-9]{0,5})\))?", part)
        if not match:
            raise _unreadable(name, environ, 'it should look like "2(x3),1"')
        counts += [int(match[1])] * int(match[2] or 1)
    return tuple(counts)


def _unreadable(name: str, environ: Mapping[str, str], why: str) -> LabError:
    state = f"{name} is {environ[name]!r}, but {why}" if name in environ else f"SLURM_JOB_ID is set, but not {name}"
    return LabError(
        f"{state}; run inside sbatch or salloc, "
        "or `unset SLURM_JOB_ID` to run as on a laptop"
    )


def gpus(gres: str) -> int:
    """Return the GPUs in a list of generic resources: "gpu:a100:4(S:0-1),nvme:1" and "gres/gpu=4" have 4.

    A number without a type is the total: "gres/gpu:a100=2,gres/gpu=2" has 2.
    """
    parts = [re.split("[:/=]", item.strip()) for item in re.sub(r"\([^)]*\)", "", gres).split(",")]
    gpu = [part[part.index("gpu") + 1:] or ["1"] for part in parts if "gpu" in part[:2]]
    totals = [part for part in gpu if len(part) == 1 and re.fullmatch("[0-9]{1,9}", part[0])]
    return sum(int(part[-1]) if re.fullmatch("[0-9]{1,9}", part[-1]) else 1 for part in totals or gpu)


def typed_gpus(text: str) -> int:
    """Return the GPUs in the value of an option that is for GPUs only: "4", "a100" (one) or "a100:2,v100:1"."""
    return gpus(re.sub(r"(^|,)(?!gpu\b)", r"\1gpu:", text)) if text else 0
