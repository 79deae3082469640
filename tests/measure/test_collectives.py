"""Sizes of messages, and the interval of a median."""

import numpy as np
import pytest

from labs.measure import collectives


def test_message_sizes_are_powers_of_4_up_to_the_largest():
    assert collectives.message_sizes(256 * 2**20) == [4**power for power in range(1, 15)]


@pytest.mark.parametrize("count", [10, 50])
def test_the_interval_holds_the_median_19_times_of_20(count):
    random = np.random.default_rng(1)
    intervals = [collectives.median_interval(random.exponential(size=count)) for _ in range(1000)]
    assert 0.93 <= np.mean([low <= np.log(2) <= high for low, high in intervals]) <= 0.99
