"""What thousands of workers cost: against simulations and limits; what docs/five-reports.md says of two reports."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.pages import at_scale, laws
from labs.run.paths import ROOT

STEPS = 0.02 + np.random.default_rng(0).gamma(2, 0.001, 400)


def predict(workers: int, **knobs) -> at_scale.Prediction:
    return at_scale.predict(workers, **{"step_seconds": STEPS, "gradient_bytes": 4.8e6} | knobs)


def test_the_slowest_of_n_agrees_with_a_simulation():
    draws = np.random.default_rng(1).choice(STEPS, (20_000, 100))
    for workers in (1, 8, 100):
        assert draws[:, :workers].max(axis=1).mean() == pytest.approx(at_scale.slowest_of(STEPS, workers), rel=2e-3)
    assert at_scale.slowest_of([1, 2], 2) == 1.75, "three of four pairs contain a 2"
    assert at_scale.slowest_of(0.5, 4096) == 0.5, "equal steps have no slowest"


@pytest.mark.parametrize("n", [2, 64])
def test_a_step_is_the_slowest_worker_and_then_the_all_reduce(n):
    """A ring, simulated message by message, with workers that begin when their own step is done."""
    nbytes, latency, bandwidth = 4.8e6, 25e-6, 1.25e9
    ends = []
    for times in np.random.default_rng(n).choice(STEPS, (100, n)):
        for _ in range(2 * (n - 1)):
            times = np.maximum(times, np.roll(times, 1)) + latency + nbytes / n / bandwidth
        ends.append(times.max())
    step = predict(n, algorithm="ring", overlap=0, latency=latency, bandwidth=bandwidth).step_seconds
    assert step == pytest.approx(np.mean(ends), abs=4 * np.std(ends) / math.sqrt(len(ends)))


@pytest.mark.parametrize(("every", "save", "restart", "mtbf"), [(60, 1, 5, 3600), (1000, 10, 500, 600)])
def test_the_time_lost_agrees_with_a_simulation(every, save, restart, mtbf):
    between = np.random.default_rng(1).exponential(mtbf, 100_000)
    trained = every * (np.maximum(between - restart, 0) // (every + save))
    lost = 1 - trained.sum() / between.sum()
    assert at_scale.time_lost(every, save, restart, mtbf) == pytest.approx(lost, rel=0.02, abs=2e-4)


@pytest.mark.parametrize("save", [0.01, 100.0, 5000.0])
def test_dalys_interval_loses_least(save):
    daly = at_scale.daly_seconds(save, 10_000)
    lost = [at_scale.time_lost(daly * factor, save, 0, 10_000) for factor in (1, *np.geomspace(0.2, 5, 400))]
    assert lost[0] <= min(lost) * 1.001
    assert at_scale.daly_seconds(30_000, 10_000) == 10_000, "a save longer than twice the time between failures"


@given(per_node=st.sampled_from([1, 4, 8]), algorithm=st.sampled_from(["ring", "halving", "best"]),
       save=st.floats(0.01, 300), overlap=st.floats(0, 1))
def test_one_worker_loses_nothing_and_more_are_never_more_efficient(per_node, algorithm, save, overlap):
    steps = [predict(n, workers_per_node=per_node, algorithm=algorithm, save_seconds=save, overlap=overlap)
             for n in (1, 2, 8, 64, 512, 4096)]
    assert steps[0].efficiency == 1
    for fewer, more in itertools.pairwise(steps):
        assert more.efficiency <= fewer.efficiency + 1e-9
        assert fewer.lost - 1e-9 <= more.lost <= 1


# What docs/five-reports.md says about two reports.

@given(step=st.floats(0.001, 1), nbytes=st.floats(1e3, 1e9), latency=st.floats(0, 1e-2), overlap=st.floats(0, 1),
       bandwidth=st.floats(1e6, 1e12), algorithm=st.sampled_from(["ring", "tree", "halving", "best"]))
def test_from_two_to_four_no_all_reduce_grows_by_less_than_half(step, nbytes, **knobs):
    two, four = (predict(n, step_seconds=step, gradient_bytes=nbytes, **knobs) for n in (2, 4))
    assert four.exposed_seconds >= 1.5 * two.exposed_seconds * (1 - 1e-9)


def test_report_cs_equal_times_are_not_communication():
    seconds = pd.read_csv(ROOT / "data/reference/lab04_speedup.csv").pivot(
        index="batch_size_per_worker", columns="workers", values="seconds_per_epoch")
    assert (seconds[2] / seconds[4]).max() < 1.06 < 4 / 3
    steps = {n: 1e3 * seconds[n] * seconds.index * n / 50_000 for n in (1, 2, 4)}
    assert list(steps[2] - steps[1]) == pytest.approx([8.3, 37.4, 55.1], abs=0.1)
    assert list(steps[4] - steps[1]) == pytest.approx([47.8, 133.9, 353.9], abs=0.1)


def test_report_ms_speedups_are_not_a_fixed_time_nor_an_all_reduce():
    seconds = {1: 456.14687, 2: 379.69139, 4: 203.63445, 6: 152.0235}  # The last run logged the steps of six workers.
    speedups = [seconds[1] / seconds[n] for n in (2, 4, 6)]
    assert [round(speedup, 2) for speedup in speedups] == [1.20, 2.24, 3.00]
    assert laws.amdahl_share([2, 4, 6], speedups) == pytest.approx([0.66, 0.26, 0.20], abs=0.005)
    serial = laws.amdahl_share(2, speedups[0])
    assert seconds[1] / laws.amdahl(4, serial) == pytest.approx(341, abs=1), "what S(2) gives; 204 were measured"
