"""CPU cores and GPUs that this process may use: affinity and control groups limit the cores, Slurm grants both."""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from labs.run.errors import LabError
from labs.run.text import plural


def cores() -> int:
    """Return how many single-threaded workers this process has cores for; at least one."""
    return max(1, int(cpus()))


def cpus(root: Path = Path("/")) -> float:
    """Return the CPU time per second that this process may use: its cores, or less under a quota.

    Args:
        root: Where /proc and the control groups are.
    """
    return min(len(os.sched_getaffinity(0)), *map(_quota, _control_groups(root)), math.inf)


def describe_quota() -> str:
    """Return a few words on a quota that leaves less than this process's cores, else an empty string."""
    return f" (the CPU quota is {cpus():g})" if cpus() < len(os.sched_getaffinity(0)) else ""


def _control_groups(root: Path) -> list[Path]:
    """Return the folders of the control groups that limit this process's CPUs: its own, and all above it.

    A container may see the host's path of its group, which is not below its folder of groups: that folder is its group.
    """
    try:
        memberships = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # No control groups.
        return []
    folders = []
    for _, names, path in (line.split(":", 2) for line in memberships):
        if not names or "cpu" in names.split(","):  # Version 2 has one unnamed hierarchy for all controllers.
            inside = PurePosixPath(path.lstrip("/") if ".." not in path else "")
            folders += [root / "sys/fs/cgroup" / names / each for each in (inside, *inside.parents)]
    return folders


def _quota(group: Path) -> float:
    """Return the CPUs of a group's quota, infinite if it has none."""
    try:
        if (group / "cpu.max").exists():
            quota, period = map(int, (group / "cpu.max").read_text().split())
        else:
            quota, period = (int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return quota / period if quota > 0 else math.inf
    except (OSError, ValueError):  # No such group or controller, or "max".
        return math.inf


def gpus() -> list:
    """Return the NVML handles of this process's GPUs; an empty list without a driver.

    The order is TensorFlow's if the GPUs are of one model: CUDA puts the fastest first, NVML follows the PCI bus. CUDA
    ignores the first invalid entry of CUDA_VISIBLE_DEVICES and every entry after it.
    """
    import pynvml

    visible, handles = os.environ.get("CUDA_VISIBLE_DEVICES"), []
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        for name in range(pynvml.nvmlDeviceGetCount()) if visible is None else visible.split(","):
            handles.append(pynvml.nvmlDeviceGetHandleByIndex(int(name)) if re.fullmatch("[0-9]+", str(name)) else
                           pynvml.nvmlDeviceGetHandleByUUID(name))
    return handles


def gpu_state(gpu) -> dict[str, float]:
    """Return a GPU's utilization in percent and its memory in use; what is not reported, as for MIG, is left out."""
    import pynvml

    state = {}
    with contextlib.suppress(pynvml.NVMLError):
        state["percent"] = float(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu)
    with contextlib.suppress(pynvml.NVMLError):
        state["memory_bytes"] = float(pynvml.nvmlDeviceGetMemoryInfo(gpu).used)
    return state


def gpu_uuid(gpu) -> str:
    """Return a GPU's name, unique in the world: a scheduler may show each worker its own GPU as GPU 0."""
    import pynvml

    return pynvml.nvmlDeviceGetUUID(gpu)


def start_ticks(pid: int | str = "self") -> int:
    """Return when a process began, in the kernel's ticks: psutil's time of day moves when the clock is set."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def process_seconds() -> float:
    """Return the seconds since this process started, even if the system time has been changed since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks() / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Allocation:
    """A Slurm job's share of the cluster."""

    job_id: str
    node_list: str
    """As Slurm writes it: "node[1-2]"."""
    ntasks_per_node: tuple[int, ...]
    """One number per node, in the order of node_list."""
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

    @property
    def cpus(self) -> int:
        """The number of CPUs for tasks on all nodes."""
        return self.ntasks * self.cpus_per_task


def allocation() -> Allocation | None:
    """Return the allocation that this process runs in, or None outside of Slurm.

    Raises:
        LabError: The SLURM_* variables cannot be read.
    """
    if "SLURM_JOB_ID" not in os.environ:
        return None
    # Always set, unlike SLURM_NTASKS, and what mpirun itself uses.
    tasks = _counts_per_node("SLURM_TASKS_PER_NODE")
    if "SLURM_CPUS_PER_TASK" in os.environ:
        cpus_per_task = int(os.environ["SLURM_CPUS_PER_TASK"])
    else:
        cpus = _counts_per_node("SLURM_JOB_CPUS_PER_NODE")
        cpus_per_task = max(1, min(map(int.__floordiv__, cpus, tasks)))
    return Allocation(os.environ["SLURM_JOB_ID"], os.environ.get("SLURM_JOB_NODELIST", ""), tasks, cpus_per_task,
                      int(os.environ.get("SLURM_GPUS_ON_NODE", 0)))


def _counts_per_node(name: str) -> tuple[int, ...]:
    """Return one number per node from Slurm's short form: "2(x3),1" is (2, 2, 2, 1)."""
    counts: list[int] = []
    for part in os.environ.get(name, "").split(","):
        match = re.fullmatch(r"([1-9][0-9]*)(?:\(x([1-9][0-9]*)\))?", part)
        if not match:
            raise LabError(f"SLURM_JOB_ID is set, but {name} is {os.environ.get(name)!r}; run inside sbatch or salloc, "
                           "or `unset SLURM_JOB_ID` to run as on a laptop")
        counts += [int(match[1])] * int(match[2] or 1)
    return tuple(counts)


def choose_tasks(granted: Allocation, requested: int | None) -> int:
    """Return how many workers to start in an allocation: as many as requested, else one per task.

    Raises:
        LabError: The allocation has fewer CPUs than the requested workers.
    """
    if requested is not None and requested > granted.cpus:
        raise LabError(
            f"--workers {requested}, but job {granted.job_id} has {plural(granted.cpus, 'CPU')} for workers on "
            f"{plural(granted.nodes, 'node')}; choose another number, or ask for more: "
            "sbatch -N NODES --ntasks-per-node=WORKERS"
        )
    return requested or granted.ntasks


def gpu_advice(granted: Allocation) -> str:
    """Return one line on GPUs that would stand idle or be shared, or an empty string."""
    tasks, count = max(granted.ntasks_per_node), granted.gpus_per_node
    if count in (0, tasks):
        return ""
    trouble = f"{count - tasks} will stand idle" if count > tasks else "workers will share one"
    return (f"{plural(count, 'GPU')} and {plural(tasks, 'worker')} per node: {trouble}; "
            f"sbatch --ntasks-per-node={count} gives each GPU one worker")


def refuse_separate_tasks() -> None:
    """Raise if srun started several tasks that MPI did not join: each would silently train alone.

    For the launcher, and for a worker whose `hvd.size()` is 1.

    Raises:
        LabError: srun started several tasks without MPI; the message names the command that works.
    """
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    # mpirun's workers inherit the variables of the srun step that started its daemons.
    if tasks != "1" and "OMPI_COMM_WORLD_SIZE" not in os.environ:
        raise LabError(
            f"srun started {tasks} tasks that MPI did not join, each would train alone; "
            "use `labs run` without srun: its mpirun finds the allocation's nodes by itself"
        )


def count_gpus(gres: str) -> int:
    """Return the GPUs in a list of generic resources: "gpu:a100:4(S:0-1),nvme:1" and "gres/gpu=4" have 4."""
    parts = [re.split("[:/=]", item.strip()) for item in re.sub(r"\([^)]*\)", "", gres).split(",")]
    counts = [part[-1] for part in parts if "gpu" in part[:2]]
    return sum(int(count) if count.isdigit() else 1 for count in counts)
