"""Lab 4: the ledger sums to the wall time."""

import dataclasses

import pytest

from labs import lab04_speedup as lab
from labs.run import local
from tests.exercises.solved import solved

TINY = dataclasses.replace(lab.PRESETS["demo"], images=128, epochs=2)


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
