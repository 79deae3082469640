"""Lab 7: the transports compute the same, the bytes are those of the parameters, the crossover is the smallest one."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labs import lab07_vit as lab
from labs.launch import local
from labs.run import command_line
from labs.run.errors import LabError
from labs.run.sweeps import cells
from tests.exercises.solved import solved
from tests.lint.test_lint import sound

DEMO = lab.PRESETS["demo"]
TINY = dataclasses.replace(DEMO, width=16, depth=1, images=256, epochs=2)


@pytest.fixture(autouse=True)
def _own_results(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "results"))


@pytest.mark.workers
def test_two_workers_over_gloo_send_the_parameters_whatever_the_batch():
    config = dataclasses.replace(TINY, width=64, batch_size=16, backend="gloo", epochs=1)
    record = local.run(lab, config, workers=2, oversubscribe=True)
    rows, gradients = record["tables"]["wire"], record["metrics"]["gradient_bytes"]
    assert record["layout"]["backend"] == "Gloo"
    assert record["machine"]["cycle_time_ms"] == 1, "a shorter one costs a Gloo worker 40 % of a core"
    assert record["machine"]["fusion_threshold_mb"] == 128
    assert gradients == 4 * record["metrics"]["parameters"] == 4 * 64_266
    assert [row["batch_size"] for row in rows] == [16, 32, 64]
    assert [row["steps_per_epoch"] for row in rows] == [8, 4, 2]
    for row in rows:
        assert row["predicted_bytes_per_step"] == 2 * gradients
        assert abs(row["difference"]) < 0.05
    assert record["metrics"]["measured_bytes_per_step"] == rows[0]["measured_bytes_per_step"]
    solved("lab07.q1")


@pytest.mark.workers
def test_one_worker_and_two_compute_the_same_at_the_same_global_batch(capfd):
    one = lab.run(TINY)
    two = local.run(lab, dataclasses.replace(TINY, batch_size=16, traffic=False), workers=2, oversubscribe=True)
    assert one["layout"]["global_batch_size"] == two["layout"]["global_batch_size"] == 32
    for mine, theirs in zip(one["history"], two["history"], strict=True):
        assert mine["learning_rate"] == pytest.approx(theirs["learning_rate"])
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
    assert one["tables"]["wire"] == two["tables"]["wire"] == []
    told = capfd.readouterr().out
    assert "no speedup" not in told, "the run of one worker has another batch per worker, and the same global batch"
    assert "2 workers against one, same global batch: speedup " in told
    (_, row) = lab.compare([one, two | {"metrics": one["metrics"]}]).to_dict("records")
    assert row["speedup"] == pytest.approx(two["timings"]["images_per_sec"] / one["timings"]["images_per_sec"])
    solved("lab07.q2", "lab07.q3")


@pytest.mark.parametrize(("wrong", "told"), [
    ({"heads": 5}, "5 heads in a width of 16"),
    ({"patch_size": 5}, "patches of 5 in pictures of 32 pixels"),
    ({"width": 0}, "--width 0 is out of range"),
    ({"heads": 0}, "--heads 0 is out of range"),
    ({"patch_size": 0}, "--patch-size 0 is out of range"),
    ({"depth": -1}, "--depth -1 is out of range"),
])
def test_shapes_that_are_none_get_one_line(wrong, told):
    with pytest.raises(LabError, match=f"^{told}|.*{told}") as problem:
        lab.run(dataclasses.replace(TINY, **wrong))
    assert "\n" not in str(problem.value)


# The crossover, on planted records.

def record(parameters: int, workers: int, rate: float, seed: int, backend: str) -> dict:
    made = sound(f"w{workers}-{parameters}-{seed}-{backend}", workers, rate)
    config = dataclasses.replace(DEMO, width=parameters, backend=backend, seed=seed, batch_size=32 // workers)
    made["config"] = dataclasses.asdict(config)
    carried = {"mpi": "MPI", "gloo": "Gloo"}[backend] if workers > 1 else "none"
    made["layout"] |= {"global_batch_size": 32, "backend": carried}
    made["metrics"] = {"parameters": parameters, "test_accuracy": 0.5}
    return made


def runs(speedups: dict[int, float], spread: float = 0.0, backend: str = "mpi") -> list[dict]:
    """Return records of one worker and of two for each size of the model, with two seeds if there is a spread."""
    return [record(size, workers, 100 * ratio ** (workers - 1) * (1 + spread * seed), seed, backend)
            for size, ratio in speedups.items() for workers in (1, 2) for seed in ((1, 2) if spread else (1,))]


SPEEDUPS = st.dictionaries(st.integers(1, 4000), st.sampled_from([0.5, 0.9, 1.1, 1.9]), min_size=1, max_size=6)


@given(SPEEDUPS)
@settings(deadline=None, max_examples=40)
def test_the_crossover_is_the_smallest_size_from_which_all_win(speedups):
    rows = lab.compare(runs(speedups))
    found = lab.crossover(rows[rows["size"] == 2].sample(frac=1, random_state=0))
    starts = [size for size in speedups if all(ratio > 1 for other, ratio in speedups.items() if other >= size)]
    assert found == min(starts, default=None)


def test_an_interval_that_contains_one_is_no_win():
    rows = lab.compare(runs({10: 0.5, 20: 1.05, 30: 1.9}, spread=0.04))
    assert rows["verdict"].tolist() == ["", "slower", "", "not certain", "", "faster"]
    assert lab.crossover(rows[rows["size"] == 2]) == 30
    assert lab.summary(runs({10: 0.5, 20: 1.05, 30: 1.9}, spread=0.04)).splitlines()[-1] == (
        "crossover: from 30 parameters on, 2 workers over MPI (global batch 32) are faster than one; "
        "not certain: 20 parameters (more --repeats narrow the intervals)")


@pytest.mark.parametrize(("speedups", "told"), [
    ({1000: 0.5, 2000: 1.5, 4000: 1.8}, "crossover: from 2,000 parameters on, .*; below, one worker is the right"),
    ({1000: 1.5, 2000: 1.8}, "crossover: from 1,000 parameters on, .*; no smaller model was tried"),
    ({1000: 0.5, 2000: 0.9}, "no crossover: on the largest model tried, of 2,000 parameters, .* one worker is the"),
])
def test_the_summary_names_the_crossover_or_says_none(speedups, told):
    *table, sentence = lab.summary(runs(speedups)).splitlines()
    assert pd.Series([sentence]).str.match(told).all(), sentence
    assert len(table) == 2 + 2 * len(speedups)


def test_one_worker_is_the_base_of_every_transport():
    one, over_mpi = runs({10: 0.5})
    over_gloo = record(10, 2, 80.0, 1, "gloo")
    rows = lab.compare([one, over_mpi, over_gloo])
    assert rows["backend"].tolist() == ["none", "Gloo", "MPI"]
    assert rows["speedup"].tolist() == [1, 0.8, 0.5]


def test_each_transport_has_its_own_verdict():
    rows = lab.compare([*runs({10: 1.22}), record(10, 2, 76.0, 1, "gloo")])
    assert lab.by_transport(rows[rows["size"] > 1]) == (
        "over Gloo: speedup 0.76, slower (1 run); over MPI: speedup 1.22, faster (1 run)")


def test_each_transport_has_a_crossover_of_its_own_and_one_size_has_none():
    both = lab.summary([*runs({10: 0.5, 20: 1.5}), *runs({10: 0.5, 20: 0.6}, backend="gloo")]).splitlines()
    assert [line.partition(":")[0] for line in both[-2:]] == ["no crossover", "crossover"]
    assert "crossover" not in lab.summary(runs({10: 1.5}))
    assert lab.summary([]) == ""


@pytest.mark.parametrize("preset", lab.SWEEPS)
def test_sweeps_hold_the_global_batch_and_ask_for_shapes_that_exist(preset):
    base = lab.PRESETS[preset]
    for cell in cells(lab, lab.SWEEPS[preset], base):
        assert cell.workers * cell.config.batch_size == base.batch_size
        assert cell.config.width % cell.config.heads == 0
        assert not cell.skipped
        command_line.check(cell.config)
