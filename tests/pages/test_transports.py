"""Speedups by transport and the crossover, from made-up records."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest

from labs import lab07_vit as lab
from labs.pages import transports
from tests.lint.test_lint import sound

DEMO = lab.PRESETS["demo"]


def record(parameters: int, workers: int, throughput: float, seed: int, backend: str) -> dict:
    made = sound(f"w{workers}-{parameters}-{seed}-{backend}", workers, throughput)
    config = dataclasses.replace(DEMO, width=parameters, backend=backend, seed=seed, batch_size=32 // workers)
    made["config"] = dataclasses.asdict(config)
    carried = {"mpi": "MPI", "gloo": "Gloo"}[backend] if workers > 1 else "none"
    made["layout"] |= {"global_batch_size": 32, "backend": carried}
    made["metrics"] = {"parameters": parameters, "test_accuracy": 0.5}
    return made


def runs(speedups: dict[int, float], spread: float = 0.004, backend: str = "mpi") -> list[dict]:
    """Return records of one worker and of two for each size of the model, with three seeds that vary by a spread."""
    varied = {1: (0, 1, 2), 2: (1, 0, 2)}
    return [record(size, workers, 100 * ratio ** (workers - 1) * (1 + spread * each), seed, backend)
            for size, ratio in speedups.items() for workers in (1, 2) for seed, each in enumerate(varied[workers], 1)]


def test_single_runs_decide_no_crossover():
    single = [run for run in runs({1000: 0.5, 2000: 1.8}) if run["config"]["seed"] == 1]
    assert transports.compare(single)["verdict"].tolist() == ["", "not certain", "", "not certain"]


def test_an_interval_that_contains_one_is_no_win():
    rows = transports.compare(runs({10: 0.5, 20: 1.05, 30: 1.9}, spread=0.04))
    assert rows["verdict"].tolist() == ["", "slower", "", "not certain", "", "faster"]
    assert transports.crossover(rows[rows["size"] == 2]) == 30
    assert transports.summary(runs({10: 0.5, 20: 1.05, 30: 1.9}, spread=0.04)).splitlines()[-1] == (
        "crossover: from 30 parameters on, 2 workers over MPI (global batch 32) are faster than one; "
        "not certain: 20 parameters (more --repeats narrow the intervals)")


@pytest.mark.parametrize(("speedups", "output"), [
    ({1000: 0.5, 2000: 1.5, 4000: 1.8}, "crossover: from 2,000 parameters on, .*; below, one worker is the right"),
    ({1000: 1.5, 2000: 1.8}, "crossover: from 1,000 parameters on, .*; no smaller model was tried"),
    ({1000: 0.5, 2000: 0.9}, "no crossover: on the largest model tried, of 2,000 parameters, .* one worker is the"),
])
def test_the_summary_names_the_crossover_or_says_none(speedups, output):
    *table, sentence = transports.summary(runs(speedups)).splitlines()
    assert pd.Series([sentence]).str.match(output).all(), sentence
    assert len(table) == 2 + 2 * len(speedups)


def test_one_worker_is_the_base_of_every_transport():
    one, over_mpi = record(10, 1, 100.0, 1, "mpi"), record(10, 2, 50.0, 1, "mpi")
    over_gloo = record(10, 2, 80.0, 1, "gloo")
    rows = transports.compare([one, over_mpi, over_gloo])
    assert rows["backend"].tolist() == ["none", "Gloo", "MPI"]
    assert rows["speedup"].tolist() == pytest.approx([1, 0.8, 0.5])


def test_transports_that_were_asked_for_and_not_used_are_not_compared():
    """Before `--backend nccl`, the gradients of GPUs went over NCCL in both halves of T4's sweep."""
    both = [record(10, 1, 100.0, 1, "mpi"), record(10, 2, 80.0, 1, "mpi"), record(10, 2, 81.0, 1, "gloo")]
    for two in both[1:]:
        two["layout"]["backend"] = "NCCL"
    assert transports.summary(both).splitlines() == [
        f"nothing is compared: run w2-10-1-{asked} was to exchange over {asked}, and its gradients went over NCCL"
        for asked in ("mpi", "gloo")]


def test_each_transport_has_a_crossover_of_its_own_and_one_size_has_none():
    both = transports.summary([*runs({10: 0.5, 20: 1.5}), *runs({10: 0.5, 20: 0.6}, backend="gloo")]).splitlines()
    assert [line.partition(":")[0] for line in both[-2:]] == ["no crossover", "crossover"]
    assert "crossover" not in transports.summary(runs({10: 1.5}))
    assert transports.summary([]) == ""
