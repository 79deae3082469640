"""Peak memory of training, and what fits: tried in a separate process, so that an out-of-memory kill is a result.

On a GPU it is the memory that TensorFlow has allocated there, without one resident memory, TensorFlow's own included.
"""

import contextlib
import ctypes
import functools
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from labs.run.errors import LabError, first_line, is_out_of_memory

SAMPLE_SECONDS, MIB = 0.005, 2**20
WITHOUT_COPIES = {"TF_ENABLE_ONEDNN_OPTS": "0"}  # oneDNN keeps copies of the tensors, which a GPU does not.


class Probe(NamedTuple):
    """Whether a trial fitted, its peak memory in MiB (until it ended), and why it did not fit."""

    fits: bool
    peak_mb: float
    cause: str = ""


def probe(action: Callable[..., Any], *arguments: Any, limit_mb: float = 0) -> Probe:
    """Try a function of a module in a separate process, which is killed as soon as it exceeds a memory limit.

    The limit is in MiB of GPU memory, or of resident memory without a GPU; 0 is that of the machine. A LabError says
    that the function failed for another reason than memory.
    """
    import tensorflow as tf

    # TensorFlow enforces the limit of a GPU itself.
    limit = 0 if tf.config.list_physical_devices("GPU") else limit_mb
    ours, theirs = _context().Pipe(duplex=False)
    process = _context().Process(target=_child, args=(theirs, action, arguments, limit_mb), daemon=True)
    process.start()
    theirs.close()
    state, peak, why = "killed", 0.0, ""
    try:
        sampled = _follow(process, ours, limit)
        with contextlib.suppress(EOFError):
            state, peak, why = ours.recv() if ours.poll() else (state, peak, why)
    finally:
        process.kill()
        process.join()
    peak = max(peak, sampled)
    if state == "failed" or (state == "killed" and process.exitcode != -9):
        raise LabError(f"trying what fits failed: {why or f'the process ended with code {process.exitcode}'}")
    if limit_mb and peak > limit_mb:
        return Probe(False, peak, f"more than {limit_mb:g} MiB")
    return Probe(True, peak) if state == "done" else Probe(False, peak, why or "killed: the system was out of memory")


@functools.cache
def _context():
    """Return the multiprocessing context: it forks a process that has loaded TensorFlow and not used it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["labs", "tensorflow"])  # The kit first: it keeps the import quiet.
    before = dict(os.environ)
    os.environ.update(WITHOUT_COPIES)
    try:
        forkserver.ensure_running()  # It inherits these variables; this process keeps its own.
    finally:
        os.environ.update(before)
    return context


def _child(parent: Connection, action: Callable[..., Any], arguments: tuple, limit_mb: float) -> None:
    import tensorflow as tf

    return_freed()
    if limit_mb and (gpus := tf.config.list_physical_devices("GPU")):
        tf.config.set_visible_devices(gpus[0], "GPU")
        tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(limit_mb)])
    try:
        action(*arguments)
    except Exception as problem:
        state, peak = ("full", peak_mb()) if is_out_of_memory(problem) else ("failed", 0.0)
        parent.send((state, peak, f"{type(problem).__name__}: {first_line(problem)}"[:300]))
    else:
        parent.send(("done", peak_mb(), ""))


def _follow(process: Any, child: Connection, limit_mb: float) -> float:
    """Wait until a process has sent its result or ended, kill it above the limit, and return its peak in MiB."""
    peak, sampled = 0.0, psutil.Process(process.pid)
    while not wait([child, process.sentinel], SAMPLE_SECONDS):
        with contextlib.suppress(psutil.NoSuchProcess):
            peak = max(peak, sampled.memory_info().rss / MIB)
        if limit_mb and peak > limit_mb:
            process.kill()
            break
    return peak


def return_freed() -> None:
    """Make malloc return large blocks to the system when they are freed, so that resident memory is memory in use."""
    # glibc keeps freed blocks below a threshold, which it raises up to 32 MiB: the size of activations.
    ctypes.CDLL(None).mallopt(-3, MIB)  # M_MMAP_THRESHOLD of malloc.h


def peak_mb() -> float:
    """Return this process's peak memory in MiB: of its GPU if it has one, else resident."""
    import tensorflow as tf

    if tf.config.list_logical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"] / MIB
    # Not `ru_maxrss`: a program inherits that of the process that started it.
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1024


def largest_that_fits(fits: Callable[[int], bool], first: int) -> int:
    """Return the largest number that fits, by bisection from `first`, to within 1/16; 0 if 1 does not fit.

    `fits` tries a number; every smaller number than one that fits must fit too.
    """
    low, high = 0, first
    while high <= 1 << 20 and fits(high):
        low, high = high, 2 * high
    if not low:
        while high > 1 and not fits(high // 2):
            high //= 2
        low = high // 2
    while high - low > max(1, low / 16):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
