"""Lab 11: the layout is told as it is, rate and batch follow all workers, layouts are compared with their own base."""

from __future__ import annotations

import dataclasses

import pytest

from labs import lab11_multinode as lab
from labs.launch import local
from labs.report import course, page
from labs.run.errors import LabError
from labs.run.sweeps import cells
from tests.exercises.solved import solved
from tests.lint.test_lint import sound, store

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
    told = capfd.readouterr().out
    assert ("layout: 1 x 2 (nodes x workers on each)\nglobal batch: 2 x 16 = 32 images, 8 steps per epoch\n"
            "learning rate: 0.001 -> 0.002: scaling linear, k = 32 / 16 = 2, after 1 epochs of warmup\n") in told


def test_report_ms_run_of_3120_steps_is_that_of_6_workers():
    def steps(size):
        return PAPER.epochs * lab.plan(PAPER, 60_000, size)["steps_per_epoch"]

    assert abs(steps(6) - 3120) <= PAPER.epochs  # An epoch's last step may be a partial one.
    assert steps(2) > 3 * 3120 - 3 * PAPER.epochs


@pytest.mark.parametrize(("size", "batch", "rate"), [
    (1, 128, 0.001), (2, 256, 0.002), (6, 768, 0.006), (8, 1024, 0.008)])
def test_the_reports_rate_is_0001_times_all_workers(size, batch, rate):
    planned = lab.plan(PAPER, 60_000, size)
    assert planned["global_batch_size"] == batch
    assert planned["scaled_lr"] == pytest.approx(rate)
    assert lab.plan(dataclasses.replace(PAPER, scaling="sqrt"), 60_000, size)["scaled_lr"] == pytest.approx(
        0.001 * size**0.5)


def test_unequal_nodes_and_nodes_without_workers_are_told(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "3")
    hosts, planned = ("node1", "node1", "node2"), lab.plan(DEMO, 1438, 3)
    layout, *_, uneven, granted = lab.told(DEMO, hosts, 2, planned)
    assert layout == "layout: 2 + 1 (nodes x workers on each); 2 on node1, 1 on node2"
    assert uneven.startswith("odd: the nodes hold unequal numbers of workers")
    assert granted.startswith("odd: Slurm granted 3 nodes, and the workers are on 2: mpirun fills the first")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    even = list(lab.told(DEMO, ("node1", "node1", "node2", "node2"), 1, planned))
    assert even[0].startswith("layout: 2 x 2, 1 machine (nodes x workers on each)")
    assert len(even) == 3, "nothing is odd"


# What the runs of several layouts say, on planted records.

def run(nodes: int, local: int, rate: float, seed: int = 1, machines: int | None = None, right: float = 0.99,
        hosts: tuple[str, ...] = (), **config) -> dict:
    """Return a record of a run over so many nodes with so many workers on each."""
    hosts = hosts or tuple(f"node{node}" for node in range(nodes) for _ in range(local))
    made = sound(f"{nodes}x{local}-{rate}-{seed}-{config}", len(hosts), rate)
    made["config"] = dataclasses.asdict(dataclasses.replace(PAPER, seed=seed, **config))
    made["layout"] |= {"nodes": nodes, "local_size": local, "hosts": list(hosts), "backend": "MPI",
                       "global_batch_size": made["config"]["batch_size"] * len(hosts)}
    made["metrics"] = {"test_accuracy": right, "test_images": 10_000, "machines": machines or nodes,
                       "scaled_lr": 0.001 * len(hosts), "allreduce_seconds": 0.01}
    return made | {"lab": "lab11_multinode"}


def rows(frame, *columns: str) -> list[tuple]:
    return list(frame[list(columns)].itertuples(index=False, name=None))


def test_several_nodes_are_compared_with_one_of_as_many_workers():
    runs = [run(1, 1, 100), run(2, 1, 190), run(4, 1, 360), run(1, 4, 240), run(2, 4, 400), run(2, 2, 300)]
    table = lab.scaled(lab.table(runs), "weak")
    assert rows(table, "layout", "over", "speedup", "scaling_efficiency", "global_batch_size") == [
        ("1 x 1", "1 x 1", 1.0, 1.0, 128),
        ("1 x 4", "1 x 1", 2.4, 0.6, 512),
        ("1 x 4", "1 x 4", 1.0, 1.0, 512),
        ("2 x 1", "1 x 1", 1.9, 0.95, 256),
        ("2 x 4", "1 x 4", pytest.approx(400 / 240), pytest.approx(400 / 480), 1024),
        ("4 x 1", "1 x 1", 3.6, 0.9, 512),
    ], "2 x 2 has no 1 x 2 to be compared with"
    assert lab.scaled(lab.table(runs), "strong").empty


def test_strong_scaling_holds_the_global_batch():
    runs = [run(1, 1, 100), run(2, 1, 150, batch_size=64), run(2, 1, 190), run(4, 1, 200, batch_size=32)]
    table = lab.scaled(lab.table(runs), "strong")
    assert rows(table, "layout", "global_batch_size", "speedup") == [
        ("1 x 1", 128, 1.0), ("2 x 1", 128, 1.5), ("4 x 1", 128, 2.0)]


def test_nodes_that_are_one_machine_are_kept_apart_and_told():
    runs = [run(1, 1, 100), run(4, 1, 360), run(4, 1, 110, machines=1)]
    frame = lab.table(runs)
    assert rows(lab.scaled(frame, "weak"), "layout", "speedup") == [
        ("1 x 1", 1.0), ("4 x 1", 3.6), ("4 x 1, 1 machine", 1.1)]
    assert lab.accuracies(frame)["layout"].tolist() == ["1 x 1", "4 x 1", "4 x 1, 1 machine"]
    assert "Nodes that are one machine share its cores" in lab.summary(runs)
    assert "one machine share" not in lab.summary(runs[:2])


def test_unequal_nodes_have_an_accuracy_and_no_speedup():
    runs = [run(1, 1, 100), run(1, 2, 180), run(2, 2, 300, hosts=("a", "a", "b"))]
    frame = lab.table(runs)
    assert lab.accuracies(frame)["layout"].tolist() == ["1 x 1", "1 x 2", "2 + 1"]
    assert lab.scaled(frame, "weak")["layout"].tolist() == ["1 x 1", "1 x 2"]


def test_accuracies_have_an_interval_of_one_seed_and_of_several():
    runs = [run(2, 1, 100, right=0.9902), run(2, 3, 100, right=0.9905),
            *(run(2, 4, 100, seed, right=right) for seed, right in ((1, 0.98), (2, 0.99), (3, 1.0)))]
    two, six, eight = lab.accuracies(lab.table(runs)).to_dict("records")
    assert two["test_accuracy_high"] - 0.9902 == pytest.approx(1.96 * 0.000985, rel=0.01)
    assert two["test_accuracy_high"] > six["test_accuracy_low"], "0.9902 and 0.9905: no difference is certain"
    assert (eight["seeds"], eight["test_accuracy"]) == (3, pytest.approx(0.99))
    assert eight["test_accuracy_high"] == pytest.approx(0.99 + 4.302652729911275 * 0.01 / 3**0.5)
    assert "0.9902 [0.9883, 0.9921]" in lab.summary(runs)
    again = lab.accuracies(lab.table([*runs, run(2, 1, 101, right=0.9902)]))
    assert again["seeds"].tolist() == [1, 1, 3], "one seed twice is no repeat"


def test_the_summary_shows_what_there_is():
    assert lab.summary([]) == ""
    alone = lab.summary([run(2, 3, 100)])
    assert "2 x 3" in alone
    assert "scaling\n" not in alone.lower()
    both = lab.summary([run(1, 1, 100), run(2, 1, 190), run(2, 1, 150, batch_size=64)])
    assert "Weak scaling\n" in both
    assert "Strong scaling\n" in both


def test_runs_of_one_epoch_have_an_accuracy_and_no_speed():
    text = lab.summary([run(1, 1, None), run(2, 1, None)])
    assert "2 x 1" in text
    assert "scaling\n" not in text.lower()


def test_the_report_page_has_it_for_runs_that_no_sweep_started(tmp_path):
    store(tmp_path, run(1, 1, 100), run(4, 1, 360))
    page.write(tmp_path, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "What each layout trains" in text
    assert "lab02_mnist_accuracy.csv" in text
    assert {path.stem for path in course.paths("lab11_multinode")} == {
        "lab02_mnist_accuracy", "lab08_throughput", "lab08_speedup"}


# The sweeps.

def planned(preset: str, name: str) -> list:
    (sweep,) = (each for each in lab.SWEEPS[preset] if each.name == name)
    return cells(lab, [sweep], lab.PRESETS[preset])


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
