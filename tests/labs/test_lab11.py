"""Lab 11: the layout as it is, learning rate and batch of all workers, each layout with its own baseline."""

from __future__ import annotations

import dataclasses

import pytest

from labs import lab11_multinode as lab
from labs.launch import local
from labs.run.errors import LabError
from labs.run.sweeps import cells
from tests.course.exercises.solved import solved

DEMO, PAPER = lab.PRESETS["demo"], lab.PRESETS["paper"]


@pytest.fixture(autouse=True)
def _own_results(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "results"))


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


def test_report_ms_run_of_3120_steps_is_that_of_6_workers():
    def steps(size):
        return PAPER.epochs * lab.plan(PAPER, 60_000, size)["steps_per_epoch"]

    assert abs(steps(6) - 3120) <= PAPER.epochs  # An epoch's last step may be a partial one.
    assert steps(2) > 3 * 3120 - 3 * PAPER.epochs


@pytest.mark.parametrize(("size", "batch", "lr"), [
    (1, 128, 0.001), (2, 256, 0.002), (6, 768, 0.006), (8, 1024, 0.008)])
def test_the_reports_rate_is_0001_times_all_workers(size, batch, lr):
    planned = lab.plan(PAPER, 60_000, size)
    assert planned["global_batch_size"] == batch
    assert planned["scaled_lr"] == pytest.approx(lr)
    assert lab.plan(dataclasses.replace(PAPER, scaling="sqrt"), 60_000, size)["scaled_lr"] == pytest.approx(
        0.001 * size**0.5)


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


# The sweeps.

def planned(preset: str, name: str) -> list:
    (sweep,) = (each for each in lab.SWEEPS[preset] if each.name == name)
    return cells([sweep], lab.PRESETS[preset])


def test_the_reports_layouts_are_two_nodes_with_2_6_and_8_workers():
    todo = planned("paper", "accuracy")
    assert {(cell.nodes, cell.workers, cell.config.epochs) for cell in todo} == {(2, 2, 40), (2, 6, 40), (2, 8, 40)}
    assert not any(cell.skipped for cell in todo)
    assert (PAPER.data, PAPER.batch_size, PAPER.base_lr, PAPER.scaling) == ("real", 128, 0.001, "linear")


@pytest.mark.parametrize("preset", lab.SWEEPS)
def test_weak_holds_the_batch_of_a_worker_and_strong_batch_and_rate_of_all(preset):
    base = lab.PRESETS[preset]
    assert {cell.config.batch_size for cell in planned(preset, "weak")} == {base.batch_size}
    strong = planned(preset, "strong")
    assert {cell.config.batch_size * cell.workers for cell in strong} == {base.batch_size}
    assert {lab.plan(cell.config, 60_000, cell.workers)["scaled_lr"] for cell in strong} == {base.base_lr}
    layouts = {(cell.nodes, cell.workers) for cell in strong}
    assert layouts == {(1, 1), (1, 2)} if preset == "demo" else layouts == {(1, 1), (2, 2), (4, 4), (8, 8)}


def test_a_missing_data_set_is_one_line():
    with pytest.raises(LabError) as problem:
        lab.run(dataclasses.replace(DEMO, data="nowhere"))
    assert "nowhere" in str(problem.value)
    assert "\n" not in str(problem.value)
