"""A worker's threads stay on its own cores while it works, and are free afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from labs.training.layout import Layout, bind_to_cores

CORES = sorted(os.sched_getaffinity(0))


def layout(local_rank: int, local_size: int, threads: int) -> Layout:
    return Layout(local_rank, local_size, local_rank, local_size, 1, ("here",), threads, 0, "none")


def cores_of_all_threads() -> set[frozenset[int]]:
    """Also of TensorFlow's and Horovod's threads, which were there before."""
    return {frozenset(os.sched_getaffinity(int(thread.name))) for thread in Path("/proc/self/task").iterdir()}


@pytest.mark.skipif(len(CORES) < 2, reason="one core cannot be divided")
def test_each_worker_of_a_node_has_cores_of_its_own():
    half = len(CORES) // 2
    for rank, expected in enumerate((CORES[:half], CORES[half : 2 * half])):
        with bind_to_cores(layout(rank, 2, half)) as cores:
            assert cores == expected
            assert cores_of_all_threads() == {frozenset(expected)}
        assert cores_of_all_threads() == {frozenset(CORES)}


def test_nothing_is_bound_where_the_cores_do_not_suffice():
    with bind_to_cores(layout(1, 2, len(CORES))) as cores:
        assert cores == CORES
