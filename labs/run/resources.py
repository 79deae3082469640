"""CPU cores and GPUs that this process may use: affinity and control groups limit the cores, Slurm grants both."""

import contextlib
import math
import os
import re
import time
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from labs.run.errors import LabError


def cores() -> int:
    """Return how many single-threaded workers this process has cores for; at least one."""
    return max(1, int(cpus()))


def cpus(root: Path = Path("/")) -> float:
    """Return the CPU time per second that this process may use: its cores, or less under a quota."""
    return min([len(os.sched_getaffinity(0)), *map(_quota, _control_groups(root))])


def describe_quota() -> str:
    """Return a few words on a quota that leaves less than this process's cores, else an empty string."""
    return f" (the CPU quota is {cpus():g})" if cpus() < len(os.sched_getaffinity(0)) else ""


def _control_groups(root: Path) -> list[Path]:
    """Return the folders of the control groups that limit this process's CPUs: its own, and all above it."""
    memberships, folders = root / "proc/self/cgroup", []
    for line in memberships.read_text().splitlines() if memberships.exists() else ():
        _, names, path = line.split(":", 2)
        if not names or "cpu" in names.split(","):  # Version 2 has one unnamed hierarchy for all controllers.
            # A container may see the host's path of its group; the folder of groups is then that of its own.
            inside = PurePosixPath(path.lstrip("/") if ".." not in path else "")
            folders += [root / "sys/fs/cgroup" / names / each for each in (inside, *inside.parents)]
    return folders


def _quota(group: Path) -> float:
    """Return the CPUs of a group's quota, infinite if it has none."""
    with contextlib.suppress(OSError, ValueError):  # No such group or controller, or "max".
        if (group / "cpu.max").exists():
            quota, period = map(int, (group / "cpu.max").read_text().split())
        else:
            quota, period = (int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return quota / period if quota > 0 else math.inf
    return math.inf


def gpus() -> list:
    """Return the NVML handles of this process's GPUs; an empty list without a driver."""
    import pynvml

    visible, handles = os.environ.get("CUDA_VISIBLE_DEVICES"), []
    with contextlib.suppress(pynvml.NVMLError):  # CUDA ignores the first invalid entry and every entry after it.
        pynvml.nvmlInit()
        for name in range(pynvml.nvmlDeviceGetCount()) if visible is None else visible.split(","):
            handles.append(pynvml.nvmlDeviceGetHandleByIndex(int(name)) if re.fullmatch("[0-9]+", str(name)) else
                           pynvml.nvmlDeviceGetHandleByUUID(name))
    return handles


def start_ticks(pid: int | str = "self") -> int:
    """Return when a process began, in the kernel's ticks: psutil's time of day moves when the clock is set."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def process_seconds() -> float:
    """Return the seconds since this process started, even if the system time has been changed since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks() / os.sysconf("SC_CLK_TCK")


class Allocation(NamedTuple):
    """A Slurm job's share of the cluster; its CPUs for tasks, on all nodes."""

    job_id: str
    ntasks_per_node: tuple[int, ...]
    cpus: int

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.ntasks_per_node)


def allocation() -> Allocation | None:
    """Return the allocation that this process runs in, or None outside of Slurm."""
    if "SLURM_JOB_ID" not in os.environ:
        return None
    # Always set, unlike SLURM_NTASKS, and what mpirun itself uses.
    tasks = _counts_per_node("SLURM_TASKS_PER_NODE")
    cpus_per_task = int(os.environ.get("SLURM_CPUS_PER_TASK", 0)) or max(
        1, min(map(int.__floordiv__, _counts_per_node("SLURM_JOB_CPUS_PER_NODE"), tasks)))
    return Allocation(os.environ["SLURM_JOB_ID"], tasks, sum(tasks) * cpus_per_task)


def _counts_per_node(name: str) -> tuple[int, ...]:
    """Return one number per node from Slurm's short form: "2(x3),1" is (2, 2, 2, 1)."""
    counts = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get(name, ""))
    if not counts:
        raise LabError(f"SLURM_JOB_ID is set, but {name} is not; run inside sbatch or salloc, or `unset SLURM_JOB_ID` "
                       "to run as on a laptop")
    return tuple(int(count) for count, times in counts for _ in range(int(times or 1)))


def refuse_separate_tasks() -> None:
    """Raise LabError if srun started several tasks that MPI did not join: each would silently train alone."""
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    # mpirun's workers inherit the variables of the srun step that started its daemons.
    if tasks != "1" and "OMPI_COMM_WORLD_SIZE" not in os.environ:
        raise LabError(f"srun started {tasks} tasks that MPI did not join, each would train alone; use `labs run` "
                       "without srun: its mpirun finds the allocation's nodes by itself")
