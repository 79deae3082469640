"""The arithmetic of bandwidths, and of the interval of a median."""

from __future__ import annotations

import numpy as np
import pytest

from labs.measure import collectives, wire


@pytest.mark.parametrize(("collective", "factors"), [
    ("allreduce", {1: 0, 2: 1, 4: 1.5, 8: 1.75}), ("broadcast", {2: 1, 8: 1}), ("allgather", {1: 0, 2: 0.5, 4: 0.75}),
])
def test_busbw_factors_are_those_of_nccls_tests(collective, factors):
    assert {size: collectives.busbw_factor(collective, size) for size in factors} == factors


def test_message_sizes_of_the_presets_reach_the_largest():
    sizes = collectives.message_sizes(256 * 2**20)
    assert sizes == [4**power for power in range(1, 15)]
    assert sizes[-1] == 256 * 2**20


@pytest.mark.parametrize("count", [10, 50])
def test_the_interval_holds_the_median_19_times_of_20(count):
    random = np.random.default_rng(1)
    held = 0
    for _ in range(1000):
        low, high = collectives.median_interval(random.exponential(size=count))
        held += low <= np.log(2) <= high
    assert 0.93 <= held / 1000 <= 0.99


def test_predicted_bytes_are_those_of_a_ring():
    assert [wire.predicted(1000, size) for size in (1, 2, 4)] == [0, 2000, 6000]
