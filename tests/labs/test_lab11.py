"""Lab 11: the layout as it is, learning rate and batch of all workers, each layout with its own baseline."""

from __future__ import annotations

import dataclasses

import pytest

from labs import lab11_multinode as lab
from labs.launch import local
from labs.run import sweeps
from labs.run.options import Options
from tests.exercises.solved import solved

DEMO = lab.PRESETS["demo"]


@pytest.mark.workers
def test_two_workers_of_one_node_say_and_record_their_layout(capfd):
    config = dataclasses.replace(DEMO, images=256, epochs=2, batch_size=16, base_batch_size=16, warmup_epochs=1)
    record = local.run(lab, config, workers=2, oversubscribe=True)
    layout, metrics = record["layout"], record["metrics"]
    assert (layout["nodes"], layout["local_size"], layout["size"], metrics["machines"]) == (1, 2, 2, 1)
    assert layout["global_batch_size"] == 32
    assert [row["steps"] for row in record["history"]] == [8, 8]
    assert record["history"][-1]["learning_rate"] == pytest.approx(metrics["scaled_lr"]) == pytest.approx(0.002)
    assert metrics["gradient_bytes"] == 4 * 1_199_882
    assert 0 < metrics["allreduce_seconds"] < 10
    assert metrics["test_images"] == 359
    solved("lab11.q1", "lab11.q2")
    output = capfd.readouterr().out
    assert ("layout: 1 x 2 (nodes x workers on each)\nglobal batch: 2 x 16 = 32 images, 8 steps per epoch\n"
            "learning rate: 0.001 -> 0.002: scaling linear, k = 32 / 16 = 2, after 1 epochs of warmup\n") in output


def test_unequal_nodes_and_nodes_without_workers_give_warnings(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "3")
    hosts, planned = ("node1", "node1", "node2"), lab.plan(DEMO, 1438, 3)
    layout, *_, uneven, granted = lab.describe(DEMO, hosts, 2, planned)
    assert layout == "layout: 2 + 1 (nodes x workers on each); 2 on node1, 1 on node2"
    assert uneven.startswith("warning: the nodes have unequal numbers of workers")
    assert granted.startswith("warning: Slurm granted 3 nodes, but the workers are on 2: mpirun fills one node")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    even = list(lab.describe(DEMO, ("node1", "node1", "node2", "node2"), 1, planned))
    assert even[0].startswith("layout: 2 x 2, 1 machine (nodes x workers on each)")
    assert len(even) == 3, "no warnings"


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_run_with_validation_images_names_its_best_epoch(tmp_path, epochs):
    config = dataclasses.replace(DEMO, images=128, epochs=epochs, validation_split=0.25, threads=0)
    record = lab.run(config, Options(results=tmp_path))
    best = max(record["history"], key=lambda row: (row["val_accuracy"], -row["epoch"]))
    assert record["metrics"]["best_epoch"] == best["epoch"]
    assert record["metrics"]["best_val_accuracy"] == best["val_accuracy"]
    if best["epoch"] == epochs:
        assert record["metrics"]["test_accuracy_at_best"] == pytest.approx(record["metrics"]["test_accuracy"])


def test_one_process_has_the_batch_of_each_number_of_workers():
    cells = sweeps.cells(lab.SWEEPS["laptop"], lab.PRESETS["laptop"])
    assert sorted((cell.workers, cell.config.batch_size // 128) for cell in cells if cell.config.seed == 1) == [
        (1, 1), (1, 2), (1, 6), (1, 8)]
