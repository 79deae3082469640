"""The interval of a median."""

import numpy as np
import pytest

from labs.measure import collectives


@pytest.mark.parametrize("count", [10, 50])
def test_the_interval_holds_the_median_19_times_of_20(count):
    random = np.random.default_rng(1)
    intervals = [collectives.median_interval(random.exponential(size=count)) for _ in range(1000)]
    assert 0.93 <= np.mean([low <= np.log(2) <= high for low, high in intervals]) <= 0.99
