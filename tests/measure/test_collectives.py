"""The arithmetic of bandwidths, and of the interval of a median."""

import numpy as np
import pytest

from labs.measure import collectives, wire


def test_bandwidths_and_bytes_are_those_of_a_ring():
    factors = {"allreduce": [0, 1, 1.5, 1.75], "broadcast": [1, 1, 1, 1], "allgather": [0, 0.5, 0.75, 0.875]}
    for collective, known in factors.items():
        assert [collectives.busbw_factor(collective, size) for size in (1, 2, 4, 8)] == known
    assert [wire.predicted(1000, size) for size in (1, 2, 4)] == [0, 2000, 6000]
    assert collectives.message_sizes(256 * 2**20) == [4**power for power in range(1, 15)]


@pytest.mark.parametrize("count", [10, 50])
def test_the_interval_holds_the_median_19_times_of_20(count):
    random = np.random.default_rng(1)
    intervals = [collectives.median_interval(random.exponential(size=count)) for _ in range(1000)]
    assert 0.93 <= np.mean([low <= np.log(2) <= high for low, high in intervals]) <= 0.99
