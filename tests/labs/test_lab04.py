"""Lab 4: the ledger sums to the wall time and finds a slow input."""

from __future__ import annotations

import dataclasses
import time

import pytest

from labs import lab04_speedup as lab
from labs.launch import local
from labs.run.errors import LabError
from tests.exercises.solved import solved

TINY = dataclasses.replace(lab.PRESETS["demo"], images=128, epochs=2)


def test_strong_scaling_divides_the_global_batch():
    config = dataclasses.replace(TINY, batch_size=64)
    assert [lab.divide(config, workers).batch_size for workers in (1, 2, 4)] == [64, 32, 16]
    with pytest.raises(LabError, match="a global batch of 64 cannot be divided among 3 workers"):
        lab.divide(config, 3)


@pytest.mark.workers
def test_the_ledger_of_two_workers_sums_to_the_epoch():
    record = local.run(lab, TINY, workers=2, oversubscribe=True)
    parts = {name: value for name, value in record["metrics"].items() if name.startswith("ledger_")}
    wall = parts.pop("ledger_wall_seconds")
    assert wall == record["history"][1]["train_seconds"]
    assert set(parts) == {f"ledger_{name}_seconds" for name in ("compute", "communication", "input", "start", "other")}
    assert sum(parts.values()) == pytest.approx(wall)
    assert parts["ledger_compute_seconds"] > 0
    assert parts["ledger_start_seconds"] > 0
    assert record["metrics"]["gradient_bytes"] == 4 * 308_826
    assert record["layout"]["threads"] == 1
    solved("lab04.q4")


@pytest.mark.slow
@pytest.mark.alone
def test_a_slow_input_is_found_as_input():
    """Images that take 30 ms a batch to come, though the pipeline works ahead."""
    import numpy as np
    import tensorflow as tf

    from labs.datasets.splits import Subset
    from labs.results import ledger
    from labs.training import workers
    from labs.training.loop import fit

    class Slow:
        shape, dtype = (64, 32, 32, 3), np.dtype("uint8")

        def __len__(self):
            return 64

        def __getitem__(self, rows):
            time.sleep(0.03)
            return np.zeros((len(rows), 32, 32, 3), np.uint8)

        digest = b"slow"

    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((32, 32, 3), dtype="uint8"), layers.Rescaling(1 / 255), layers.Flatten(),
                                 layers.Dense(10, activation="softmax")])
    train = Subset(Slow(), np.zeros(64, np.int64), np.arange(64))
    with workers.start(TINY) as job:
        history = fit(job, model, tf.keras.optimizers.SGD(0.01), train, batch_size=4, epochs=2)
        times, _ = ledger.measure(job, model, train, history, batch_size=4)
    steps = history[1]["steps"]
    assert 0.6 < times["ledger_input_seconds"] / (0.03 * steps) < 1.2
    assert times["ledger_compute_seconds"] < 0.5 * times["ledger_input_seconds"]
