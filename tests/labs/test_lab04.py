"""Lab 4: the ledger sums to the wall time and finds a slow input."""

import dataclasses
import time

import pytest

from labs import lab04_speedup as lab
from labs.datasets.image_cache import ImageCache
from labs.run import local
from tests.exercises.solved import solved

TINY = dataclasses.replace(lab.PRESETS["demo"], images=128, epochs=2)


class Slow(ImageCache):
    """Pictures of which each takes some seconds, though the pipeline works ahead."""

    memory, digest = None, "slow"

    def __init__(self, shape: tuple[int, ...], seconds: float):
        self.shape, self.seconds = shape, seconds

    def __getitem__(self, rows):
        time.sleep(self.seconds * len(rows))
        return np.zeros((len(rows), *self.shape[1:]), np.uint8)


@pytest.mark.workers
def test_the_ledger_of_two_workers_sums_to_the_epoch():
    record = local.run(lab, TINY, workers=2, oversubscribe=True)
    parts = {name: value for name, value in record["metrics"].items() if name.startswith("ledger_")}
    wall = parts.pop("ledger_wall_seconds")
    assert wall == record["history"][1]["train_seconds"]
    assert set(parts) == {f"ledger_{name}_seconds" for name in ("compute", "communication", "input", "start", "other")}
    assert sum(parts.values()) == pytest.approx(wall)
    assert parts["ledger_compute_seconds"] > 0
    assert record["metrics"]["gradient_bytes"] == 4 * 308_826
    solved("lab04.q4")
