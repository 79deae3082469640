"""Cores of its own for each worker of a node: a layout of processes x threads is one only if nobody borrows a core."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from labs.training.workers import Layout


@contextlib.contextmanager
def bind_to_cores(layout: Layout) -> Iterator[list[int]]:
    """Keep all threads of this worker on as many cores as it has TensorFlow threads, while the block runs.

    TensorFlow counts the threads of one operation only. Without a bond, two operations at a time, the input and Horovod
    take what cores they find, and one worker of one thread is measured with the help of the whole node.

    Args:
        layout: Of the run. Where the node has not enough cores, or a scheduler has given each worker its own already,
            nothing is bound.

    Yields:
        The cores.
    """
    cores = sorted(os.sched_getaffinity(0))
    mine = cores
    if layout.local_size * layout.threads <= len(cores):
        mine = cores[layout.local_rank * layout.threads :][: layout.threads]
    try:
        _bind(mine)
        yield mine
    finally:
        _bind(cores)


def _bind(cores: list[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # It has ended meanwhile.
            os.sched_setaffinity(int(thread.name), cores)
