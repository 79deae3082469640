"""A worker's threads stay on its own cores while it works, and are free afterwards."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from labs.training.devices import bind_to_cores
from labs.training.layout import Layout

CORES = sorted(os.sched_getaffinity(0))


def layout(local_rank: int, local_size: int, threads: int) -> Layout:
    return Layout(local_rank, local_size, local_rank, local_size, 1, ("here",), threads, 0, "none")


@pytest.fixture
def old_thread():
    """A thread that was there before, as Horovod's is."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    yield thread
    ended.set()
    thread.join()


@pytest.mark.skipif(len(CORES) < 2, reason="one core cannot be divided")
def test_each_worker_of_a_node_has_cores_of_its_own(old_thread):
    half = len(CORES) // 2
    seen = []
    for rank in range(2):
        with bind_to_cores(layout(rank, 2, half)) as cores:
            seen.append(cores)
            assert os.sched_getaffinity(0) == set(cores)
            assert os.sched_getaffinity(old_thread.native_id) == set(cores)
    assert seen == [CORES[:half], CORES[half : 2 * half]]


def test_afterwards_every_thread_is_free(old_thread):
    with pytest.raises(RuntimeError), bind_to_cores(layout(0, 1, 1)):
        raise RuntimeError
    for thread in Path("/proc/self/task").iterdir():
        assert os.sched_getaffinity(int(thread.name)) == set(CORES)


def test_nothing_is_bound_where_the_cores_do_not_suffice():
    with bind_to_cores(layout(1, 2, len(CORES))) as cores:
        assert cores == CORES
