"""Cores, memory and GPUs."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from labs.launch import capacity
from labs.run import allocation, resources
from labs.run.text import plural
from labs.tools.check import software
from labs.tools.check.findings import Finding, absent, fail, ok, warn

WORKER_GB = 1.0
"""What a worker of a demo takes, with a margin."""
SHARED_MB = 32
"""Two workers exchange gradients through it; with 16 MB they fail at the start."""


def cores() -> Finding:
    """Count the cores that workers may use, of this machine or of the allocation."""
    granted = allocation.current()
    allocation.check_step()
    if granted:
        tasks, nodes = plural(granted.ntasks, "task"), plural(granted.nodes, "node")
        return ok(f"{tasks} of {granted.cpus_per_task} on {nodes} (job {granted.job_id})")
    mine, there = capacity.slots(), os.cpu_count()
    state = f"{mine} of {there}{resources.describe_quota()}"
    if mine < 2:
        return warn(f"{state}: two workers take turns on it", "labs run LAB --workers 2 --oversubscribe")
    return ok(state)


def memory() -> Finding:
    """Compare the free memory, or the limit of a job or container, with what two workers need."""
    import psutil

    machine = psutil.virtual_memory()
    free = min(machine.available, *_limits())
    state = f"{free / 1e9:.1f} GB free of {machine.total / 1e9:.0f}"
    if free < 2 * WORKER_GB * 1e9:
        return fail(f"{state}; two workers take {2 * WORKER_GB:.0f}", "end other programs; in a job: sbatch --mem=4G")
    return ok(state)


def shared_memory() -> Finding:
    """Check /dev/shm, through which workers of one machine exchange gradients."""
    try:
        free = shutil.disk_usage("/dev/shm").free / 1e6
    except OSError as error:
        return fail(f"/dev/shm: {error.strerror}", "mount -t tmpfs tmpfs /dev/shm")
    if free < SHARED_MB:
        return fail(f"{free:.0f} MB free in /dev/shm, and two workers need {SHARED_MB}",
                    "rm what earlier runs have left there; in a container: docker run --shm-size=1g")
    return ok(f"{free / 1e3:.1f} GB free in /dev/shm")


def gpus() -> Finding:
    """Count the GPUs by their driver, without TensorFlow."""
    import pynvml

    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        names = _names()
    except pynvml.NVMLError_LibraryNotFound:
        return absent("no NVIDIA driver; the labs run on the CPU")
    except pynvml.NVMLError as error:
        return fail(f"the GPUs' driver does not work: {error}", "tell the machine's administrator; nvidia-smi")
    if not names:
        return absent("none; the labs run on the CPU")
    if not capacity.visible_gpus():
        return warn(f"CUDA_VISIBLE_DEVICES={hidden} hides all {len(names)}", "unset CUDA_VISIBLE_DEVICES")
    return ok(f"{capacity.visible_gpus()} of {len(names)}: {', '.join(sorted(set(names)))}")


def _names() -> list[str]:
    """Return the names of this machine's GPUs.

    Raises:
        pynvml.NVMLError: There is no driver, or it does not work.
    """
    import pynvml

    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
    return [pynvml.nvmlDeviceGetName(handle) for handle in handles]


def nccl() -> Finding:
    """Check whether TensorFlow sees the GPUs, and whether Horovod sends gradients directly between them."""
    if not capacity.visible_gpus():
        return absent("only GPUs need it")
    facts, _ = software.probe()
    if not facts.get("gpus"):
        return fail("TensorFlow sees none of the GPUs: a CUDA library is missing or not found, or the driver is older "
                    "than 525.60",
                    "make horovod; if that does not help: docs/gpu-environment.md")
    if not facts.get("nccl"):
        return warn("Horovod was built without it: gradients go from GPU to GPU through the CPUs", "make horovod")
    return ok("built into Horovod")


def _limits() -> list[int]:
    """Return how many bytes each control group of this process has left."""
    return [left for group in resources.groups("memory") for left in _left(group)]


def _left(group: Path) -> list[int]:
    """Return the bytes that a group has left, as a list; an empty one if the group has no limit."""
    limit, usage = ("memory.max", "memory.current") if (group / "memory.max").exists() else (
        "memory.limit_in_bytes", "memory.usage_in_bytes")
    try:
        statistics = (group / "memory.stat").read_text()
        # The file cache counts as used, but the kernel frees it when memory is needed.
        prefix = "total_" * ("total_" in statistics)
        cached = re.findall(rf"(?m)^{prefix}(?:in)?active_file (\d+)", statistics)
        return [int((group / limit).read_text()) - int((group / usage).read_text()) + sum(map(int, cached))]
    except (OSError, ValueError):  # "max", or a container that hides its groups.
        return []
