"""CPU cores and GPUs that this process may use, and its age. Affinity and control groups (cgroups) limit the cores."""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from pathlib import Path, PurePosixPath


def cores() -> int:
    """Return how many single-threaded workers this process has cores for; at least one."""
    return max(1, int(cpus()))


def cpus(root: Path = Path("/")) -> float:
    """Return the CPU time per second that this process may use: its cores, or less under a quota.

    Args:
        root: Where /proc and the control groups are.
    """
    return min(_bound(), *map(_quota, groups("cpu", root)), math.inf)


def describe_quota() -> str:
    """Return a few words on a quota that leaves less than this process's cores, else an empty string."""
    return f" (the CPU quota is {cpus():g})" if cpus() < _bound() else ""


def gpus() -> list:
    """Return the NVML handles of this process's GPUs; an empty list without a driver.

    The order is TensorFlow's if the GPUs are of one model: CUDA puts the fastest first, NVML follows the PCI bus. CUDA
    ignores the first invalid entry of CUDA_VISIBLE_DEVICES and every entry after it.
    """
    import pynvml

    shown, handles = os.environ.get("CUDA_VISIBLE_DEVICES"), []
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        for name in range(pynvml.nvmlDeviceGetCount()) if shown is None else shown.split(","):
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


def began(pid: int | str = "self") -> int:
    """Return when a process began, in the kernel's ticks: psutil's time of day moves when the clock is set."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def process_seconds() -> float:
    """Return the seconds since this process started, even if the system time has been changed since boot."""
    try:
        ticks = began()
    except OSError:  # Not Linux.
        import psutil

        return time.time() - psutil.Process().create_time()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _bound() -> int:
    """Return the number of cores on which this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def groups(controller: str, root: Path = Path("/")) -> list[Path]:
    """Return the folders of the control groups that limit this process: its own, and all above it that it can see.

    Args:
        controller: "cpu" or "memory".
        root: Where /proc and the control groups are.
    """
    try:
        memberships = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:  # Not Linux.
        return []
    path_of = {name: path for line in memberships for _, names, path in [line.split(":", 2)]
               for name in names.split(",")}
    folders = []
    for line in mounts:
        # Version 2 has one unnamed hierarchy for all controllers.
        mount = re.search(r"^\S+ \S+ \S+ (\S+) (\S+) .* - cgroup(2?) \S+ (\S+)$", line)
        name = "" if mount and mount[3] else controller
        if mount and name in path_of and (not name or name in mount[4].split(",")):
            folders += _with_parents(root / mount[2].lstrip("/"), path_of[name], mount[1])
    return folders


def _with_parents(mounted: Path, path: str, top: str) -> list[Path]:
    """Return the folder of a group and of all groups above it, up to the one that is mounted."""
    inside = PurePosixPath()
    with contextlib.suppress(ValueError):  # A container may mount its own group as the root but show the host's path.
        inside = PurePosixPath(path).relative_to(top)
    return [mounted] if ".." in inside.parts else [mounted / inside, *(mounted / each for each in inside.parents)]


def _quota(group: Path) -> float:
    """Return the CPUs of a group's quota, infinite if it has none."""
    try:
        if (group / "cpu.max").exists():
            quota, period = map(int, (group / "cpu.max").read_text().split())
        else:
            quota, period = (int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return quota / period if quota > 0 else math.inf
    except (OSError, ValueError, ZeroDivisionError):  # No such controller, or "max".
        return math.inf
