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


@pytest.mark.parametrize("largest", [4, 1024, 16 * 2**20, 256 * 2**20])
def test_message_sizes(largest):
    sizes = collectives.message_sizes(largest)
    assert sizes[0] == 4
    assert sizes == [4 ** (index + 1) for index in range(len(sizes))]
    assert largest / 4 < sizes[-1] <= largest


def test_message_sizes_of_the_presets_reach_the_largest():
    assert collectives.message_sizes(16 * 2**20)[-1] == 16 * 2**20
    assert collectives.message_sizes(256 * 2**20)[-1] == 256 * 2**20


@pytest.mark.parametrize("count", [10, 50])
def test_the_interval_holds_the_median_19_times_of_20(count):
    random = np.random.default_rng(1)
    held = 0
    for _ in range(1000):
        low, high = collectives.median_interval(random.exponential(size=count))
        held += low <= np.log(2) <= high
    assert 0.93 <= held / 1000 <= 0.99


def test_the_interval_of_few_values_is_their_range():
    assert collectives.median_interval(np.array([3.0, 1.0, 2.0])) == (1.0, 3.0)


def test_predicted_bytes_are_those_of_a_ring():
    assert [wire.predicted(1000, size) for size in (1, 2, 4)] == [0, 2000, 6000]


def test_where_the_gradients_went():
    assert "one worker" in wire.route(0, 0)
    assert "shared memory" in wire.route(50, 2e6)
    assert wire.route(1.9e6, 2e6) == "network interfaces"
