"""Lab 1 on real digits."""

import math

import pytest

from labs import lab01_baseline as lab
from labs.run import local
from tests.exercises.solved import solved


@pytest.mark.workers
def test_one_worker_learns_the_digits_and_tells_how_busy_it_was():
    record = local.run(lab, ["--epochs", "4", "--batch-size", "64"], workers=1)
    metrics = record["metrics"]
    assert metrics["steps"] == 4 * math.ceil(record["history"][0]["images"] / 64)
    assert metrics["test_accuracy"] > 0.85
    assert 0 < metrics["cpu_percent"] < 105
    solved("lab01.q1", "lab01.q2")
