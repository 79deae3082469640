"""What the input alone delivers, and how busy all workers are together."""

from __future__ import annotations

import time

import numpy as np
import pytest

from labs.datasets.splits import Subset
from labs.measure.throughput import input_rate
from labs.measure.utilization import combine


class Slow:
    """Pictures of which each takes four milliseconds."""

    dtype = np.dtype(np.uint8)
    shape = (64, 8, 8, 3)

    def __getitem__(self, rows):
        time.sleep(0.004 * len(rows))
        return np.zeros((len(rows), 8, 8, 3), np.uint8)


def test_the_supply_is_the_rate_at_which_pictures_come():
    """At most 250 a second by construction; two ahead of the clock may have come while the first was awaited."""
    part = Subset(Slow(), np.zeros(64, np.float32), np.arange(64))
    assert 50 < input_rate(part, batch_size=8, seconds=1.0) < 350


def test_workers_together():
    one = {"cpu_percent": 90.0, "memory_bytes": 1e9, "gpu0_percent": 50.0}
    other = {"cpu_percent": 70.0, "memory_bytes": 3e9, "gpu0_percent": 100.0}
    assert combine([one, other], nodes=1) == {"cpu_percent": 80.0, "memory_bytes": 4e9, "gpu_percent": 75.0}
    full, fuller = one | {"gpu0_memory_bytes": 2e9}, other | {"gpu0_memory_bytes": 5e9}
    assert combine([full, fuller], nodes=1)["gpu_memory_bytes"] == 5e9
    assert combine([full, fuller], nodes=1)["gpu_percent"] == 75.0
    assert combine([one, other], nodes=2)["memory_bytes"] == pytest.approx(2e9)
    assert "gpu_percent" not in combine([{"cpu_percent": 1.0, "memory_bytes": 1.0}], nodes=1)
