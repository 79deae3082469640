"""Lab 11: the layout as it is, learning rate and batch of all workers, the best epoch."""

import dataclasses

import pytest

from labs import lab11_multinode as lab
from labs.run import local
from tests.exercises.solved import solved

DEMO = lab.PRESETS["demo"]


@pytest.mark.workers
def test_two_workers_of_one_node_say_and_record_their_layout_and_best_epoch(capfd):
    config = dataclasses.replace(DEMO, images=256, epochs=2, batch_size=16, base_batch_size=16, warmup_epochs=1)
    record = local.run(lab, config, workers=2, oversubscribe=True)
    layout, metrics = record["layout"], record["metrics"]
    assert (layout["nodes"], layout["local_size"], layout["size"], metrics["machines"]) == (1, 2, 2, 1)
    assert record["history"][-1]["learning_rate"] == pytest.approx(metrics["scaled_lr"]) == pytest.approx(0.002)
    assert metrics["gradient_bytes"] == 4 * 1_199_882
    assert 0 < metrics["allreduce_seconds"] < 10
    solved("lab11.q1", "lab11.q2")
    output = capfd.readouterr().out
    assert ("layout: 1 x 2 (nodes x workers on each)\nglobal batch: 2 x 16 = 32 images, 8 steps per epoch\n"
            "learning rate: 0.001 -> 0.002: scaling linear, k = 32 / 16 = 2, after 1 epochs of warmup\n") in output
    record = local.run(lab, dataclasses.replace(config, validation_split=0.25), workers=2, oversubscribe=True)
    best = max(record["history"], key=lambda row: (row["val_accuracy"], -row["epoch"]))
    assert record["metrics"]["best_epoch"] == best["epoch"]
    assert record["metrics"]["best_val_accuracy"] == best["val_accuracy"]
