"""Peak memory of training, and what fits: tried in a process of its own, where being killed is a result and no crash.

On a GPU it is what TensorFlow has allocated there. Without one it is the memory that is resident, TensorFlow itself
included (some 0.3 GiB): what the kernel's out-of-memory killer counts.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import psutil

from labs.run.errors import LabError
from labs.run.fast import FOR_MEMORY

LOOK = 0.005
"""Seconds between two looks at the memory of a process on trial."""
MIB = 2**20


@dataclasses.dataclass(frozen=True)
class Probe:
    """What came of a trial."""

    fits: bool
    peak_mb: float
    """The most memory that was in use, in MiB; when it did not fit, up to its end."""
    cause: str = ""
    """Why it did not fit."""


def probe(action: Callable[..., Any], *arguments: Any, limit_mb: float = 0) -> Probe:
    """Try an action in a process of its own, which is killed as soon as it holds more memory than it may.

    Args:
        action: A function of a module; it is pickled by its name.
        arguments: What it is called with.
        limit_mb: MiB of the GPU, or of resident memory where there is none; 0: what the machine has.

    Raises:
        LabError: The action failed, but not for want of memory.
    """
    ours, theirs = _context().Pipe(duplex=False)
    process = _context().Process(target=_child, args=(theirs, action, arguments, limit_mb), daemon=True)
    process.start()
    theirs.close()
    try:
        most = _watched(process, ours, limit_mb)
        told = ours.recv() if ours.poll() else None
    except EOFError:
        told = None
    finally:
        process.kill()
        process.join()
    return _judged(told, most, limit_mb, process.exitcode)


@functools.cache
def _context():
    """Return how to start processes: copies of one that has loaded TensorFlow once and has not used it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tensorflow"])
    before = dict(os.environ)
    os.environ.update(FOR_MEMORY)
    try:
        forkserver.ensure_running()  # It takes these variables; this process keeps its own.
    finally:
        os.environ.update(before)
    return context


def _child(told: Connection, action: Callable[..., Any], arguments: tuple, limit_mb: float) -> None:
    import tensorflow as tf

    return_freed()
    if limit_mb and (gpus := tf.config.list_physical_devices("GPU")):
        tf.config.set_visible_devices(gpus[0], "GPU")
        tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(limit_mb)])
    try:
        action(*arguments)
    except (tf.errors.ResourceExhaustedError, MemoryError) as full:
        told.send(("full", peak_mb(), str(full).splitlines()[0][:200]))
    except Exception as problem:
        told.send(("failed", 0.0, f"{type(problem).__name__}: {problem}"))
    else:
        told.send(("done", peak_mb(), ""))


def _watched(process: Any, told: Connection, limit_mb: float) -> float:
    """Wait until a process has told its result or is gone; return the most MiB seen, having killed it above the limit.

    What it holds in a GPU is not seen here: TensorFlow keeps that limit itself.
    """
    most, seen = 0.0, psutil.Process(process.pid)
    while not wait([told, process.sentinel], LOOK):
        try:
            most = max(most, seen.memory_info().rss / MIB)
        except psutil.NoSuchProcess:
            break
        if limit_mb and most > limit_mb and not _gpus():
            process.kill()
            break
    return most


@functools.cache
def _gpus() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def _judged(told: tuple[str, float, str] | None, most: float, limit_mb: float, exitcode: int) -> Probe:
    state, peak, why = told or ("killed", most, "")
    peak = max(peak, most)
    if state == "failed" or (told is None and exitcode != -9):
        raise LabError(f"trying what fits failed: {why or f'the process ended with code {exitcode}'}")
    if limit_mb and peak > limit_mb:
        return Probe(False, peak, f"more than {limit_mb:g} MiB")
    if state == "done":
        return Probe(True, peak)
    return Probe(False, peak, why or "killed by the system, which had no more memory")


def return_freed() -> None:
    """Have this process give large blocks back as soon as they are freed, so that what is resident is what is in use.

    glibc keeps blocks below a threshold that it raises up to 32 MiB as it goes: activations are of that size.
    """
    threshold = -3  # M_MMAP_THRESHOLD of malloc.h
    ctypes.CDLL(None).mallopt(threshold, MIB)


def peak_mb() -> float:
    """Return the most memory that this process has had in use, in MiB: of its GPU, else resident."""
    import tensorflow as tf

    if tf.config.list_logical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"] / MIB
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1024


def largest_that_fits(fits: Callable[[int], bool], first: int, most: int = 1 << 20, precision: float = 1 / 16) -> int:
    """Return the largest number that fits, by bisection, as exactly as asked; 0 if not even 1 does.

    Args:
        fits: Tries a number; what is smaller than one that fits must fit too.
        first: Where to begin: from there it goes up or down by factors of two, until the end is between two numbers.
        most: Where to stop looking.
        precision: How far the next number that does not fit may be away, as a share of the answer.
    """
    low, high = 0, first
    while high <= most and fits(high):
        low, high = high, 2 * high
    if not low:
        while high > 1 and not fits(high // 2):
            high //= 2
        low = high // 2
    while high - low > max(1, precision * low):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
