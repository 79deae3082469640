"""CPU affinity: give each worker of a node its own cores, so that "processes x threads" is what is measured."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from labs.training.layout import Layout


@contextlib.contextmanager
def bind_to_cores(layout: Layout) -> Iterator[list[int]]:
    """Keep all threads of this worker on as many cores as it has TensorFlow threads, while the block runs.

    TensorFlow's setting limits the threads of one operation only. Unbound, two operations at a time, the input pipeline
    and Horovod use any free core, and one worker of one thread is measured with the help of the whole node.

    Args:
        layout: Of the run. Nothing is bound if the node has too few cores, or if a scheduler has bound the workers.

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
        with contextlib.suppress(ProcessLookupError):  # The thread has ended.
            os.sched_setaffinity(int(thread.name), cores)
