"""Layouts of workers on nodes, compared with their own baseline, from made-up records."""

from __future__ import annotations

import dataclasses

import pytest

from labs import lab11_multinode as lab
from labs.pages import layouts
from tests.lint.test_lint import sound

PAPER = lab.PRESETS["paper"]


def run(nodes: int, local: int, throughput: float, seed: int = 1, machines: int | None = None, right: float = 0.99,
        **config) -> dict:
    """Return a record of a run over `nodes` nodes with `local` workers on each."""
    hosts = [f"node{node}" for node in range(nodes) for _ in range(local)]
    made = sound(f"{nodes}x{local}-{throughput}-{seed}-{config}", len(hosts), throughput)
    made["config"] = dataclasses.asdict(dataclasses.replace(PAPER, seed=seed, **config))
    made["layout"] |= {"nodes": nodes, "local_size": local, "hosts": hosts, "backend": "MPI",
                       "global_batch_size": made["config"]["batch_size"] * len(hosts)}
    made["metrics"] = {"test_accuracy": right, "test_images": 10_000, "machines": machines or nodes,
                       "scaled_lr": 0.001 * len(hosts), "allreduce_seconds": 0.01}
    return made | {"lab": "lab11_multinode"}


def rows(frame, *columns: str) -> list[tuple]:
    return list(frame[list(columns)].itertuples(index=False, name=None))


def test_several_nodes_are_compared_with_one_of_as_many_workers():
    runs = [run(1, 1, 100), run(2, 1, 190), run(4, 1, 360), run(1, 4, 240), run(2, 4, 400), run(2, 2, 300)]
    table = layouts.scaled(layouts.table(runs), "weak")
    assert rows(table, "layout", "over", "speedup", "scaling_efficiency", "global_batch_size") == [
        ("1 x 1", "1 x 1", 1.0, 1.0, 128),
        ("1 x 4", "1 x 1", pytest.approx(2.4), pytest.approx(0.6), 512),
        ("1 x 4", "1 x 4", 1.0, 1.0, 512),
        ("2 x 1", "1 x 1", pytest.approx(1.9), pytest.approx(0.95), 256),
        ("2 x 4", "1 x 4", pytest.approx(400 / 240), pytest.approx(400 / 480), 1024),
        ("4 x 1", "1 x 1", pytest.approx(3.6), pytest.approx(0.9), 512),
    ], "2 x 2 has no 1 x 2 to be compared with"
    assert layouts.scaled(layouts.table(runs), "strong").empty


def test_strong_scaling_holds_the_global_batch():
    runs = [run(1, 1, 100), run(2, 1, 150, batch_size=64), run(2, 1, 190), run(4, 1, 200, batch_size=32)]
    table = layouts.scaled(layouts.table(runs), "strong")
    assert rows(table, "layout", "global_batch_size", "speedup") == [
        ("1 x 1", 128, 1.0), ("2 x 1", 128, pytest.approx(1.5)), ("4 x 1", 128, pytest.approx(2.0))]


def test_nodes_that_are_one_machine_are_kept_apart_and_told():
    runs = [run(1, 1, 100), run(4, 1, 360), run(4, 1, 110, machines=1)]
    frame = layouts.table(runs)
    assert rows(layouts.scaled(frame, "weak"), "layout", "speedup") == [
        ("1 x 1", 1.0), ("4 x 1", pytest.approx(3.6)), ("4 x 1, 1 machine", pytest.approx(1.1))]
    assert layouts.accuracies(frame)["layout"].tolist() == ["1 x 1", "4 x 1", "4 x 1, 1 machine"]
    assert "Nodes on one machine share its cores" in layouts.summary(runs)
    assert "one machine share" not in layouts.summary(runs[:2])


def test_accuracies_have_an_interval_of_one_seed_and_of_several():
    runs = [run(2, 1, 100, right=0.9902), run(2, 3, 100, right=0.9905),
            *(run(2, 4, 100, seed, right=right) for seed, right in ((1, 0.98), (2, 0.99), (3, 1.0)))]
    two, six, eight = layouts.accuracies(layouts.table(runs)).to_dict("records")
    assert two["test_accuracy_high"] - 0.9902 == pytest.approx(1.96 * 0.000985, rel=0.01)
    assert two["test_accuracy_high"] > six["test_accuracy_low"]
    assert (eight["seeds"], eight["test_accuracy"]) == (3, pytest.approx(0.99))
    assert eight["test_accuracy_high"] == pytest.approx(0.99 + 4.302652729911275 * 0.01 / 3**0.5)
    assert "0.9902 [0.9883, 0.9921]" in layouts.summary(runs)
    again = layouts.accuracies(layouts.table([*runs, run(2, 1, 101, right=0.9902)]))
    assert again["seeds"].tolist() == [1, 1, 3], "one seed twice is no repeat"


def test_the_summary_shows_what_there_is():
    assert layouts.summary([]) == ""
    both = layouts.summary([run(1, 1, 100), run(2, 1, 190), run(2, 1, 150, batch_size=64)])
    assert "Weak scaling\n" in both
    assert "Strong scaling\n" in both
    of_one_epoch = layouts.summary([run(1, 1, None), run(2, 1, None)])
    assert "2 x 1" in of_one_epoch
    assert "scaling\n" not in of_one_epoch.lower()
