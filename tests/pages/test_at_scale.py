"""What thousands of workers cost: against simulations, against limits, and against published figures."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.pages import at_scale, laws
from labs.results import cost_model
from labs.run.errors import LabError
from labs.run.paths import ROOT

STEPS = 0.02 + np.random.default_rng(0).gamma(2, 0.001, 400)
KNOBS = {"step_seconds": STEPS, "gradient_bytes": 4.8e6, "batch_size": 32}


def predict(workers: int, **knobs) -> at_scale.Prediction:
    return at_scale.predict(workers, **KNOBS | knobs)


@pytest.mark.parametrize("workers", [1, 8, 100])
def test_the_slowest_of_n_agrees_with_a_simulation(workers):
    exact = at_scale.slowest_of(STEPS, workers)
    assert at_scale.simulated_slowest(STEPS, workers, steps=20_000) == pytest.approx(exact, rel=2e-3)


def test_the_slowest_of_n_at_points_that_are_known():
    assert at_scale.slowest_of([1, 2], 2) == 1.75, "three of four pairs contain a 2"
    assert at_scale.slowest_of([3, 1, 2], 1) == pytest.approx(2), "the mean, in any order"
    assert at_scale.slowest_of(0.5, 4096) == 0.5, "equal steps have no slowest"


def test_a_wait_beyond_the_measurement_is_a_lower_bound():
    assert [predict(workers).wait_is_too_low for workers in (1, 40, 41)] == [False, False, True]
    assert not predict(4096, step_seconds=0.02).wait_is_too_low
    assert at_scale.text(at_scale.table((40, 41), **KNOBS)).count(">= ") == 1


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


@pytest.mark.parametrize(("communication", "step", "exposed"), [
    (0.1, 0.3, 0.03),  # The backward pass, 0.2 s, would hide all of it; 70 % can hide.
    (0.1, 0.03, 0.08),  # The backward pass hides no more than its 0.02 s.
])
def test_what_a_step_hides(communication, step, exposed):
    assert cost_model.exposed_seconds(communication, step, overlap=0.7) == pytest.approx(exposed)


def test_which_all_reduce_is_fastest_depends_on_the_bytes_and_the_workers():
    def seconds(workers, nbytes):
        return {name: predict(workers, gradient_bytes=nbytes, algorithm=name).allreduce_seconds
                for name in ("ring", "tree", "halving", "best")}

    few, many, tiny = seconds(4, 60e6), seconds(4096, 60e6), seconds(4096, 100)
    assert few["ring"] < few["tree"]
    assert tiny["tree"] < tiny["ring"] / 100
    assert many["ring"] > many["halving"]
    assert all(each["best"] == min(each.values()) for each in (few, many, tiny))


@pytest.mark.parametrize("costs", [(60, 1, 5, 3600), (10, 0.07, 4, 400), (1000, 10, 500, 600)])
def test_the_time_lost_agrees_with_a_simulation(costs):
    lost, simulated = at_scale.time_lost(*costs), at_scale.simulated_time_lost(*costs, failures=100_000)
    for name in ("saving", "repeating", "restarting", "total"):
        assert getattr(lost, name) == pytest.approx(getattr(simulated, name), rel=0.02, abs=2e-4)


@pytest.mark.parametrize("save", [0.01, 100.0, 5000.0])
def test_dalys_interval_loses_least(save):
    def lost(every):
        return at_scale.time_lost(every, save, 0, 10_000).total

    daly = at_scale.daly_seconds(save, 10_000)
    assert lost(daly) <= min(lost(daly * factor) for factor in np.geomspace(0.2, 5, 400)) * 1.001
    assert at_scale.young_seconds(50, 10_000) == 1000
    assert at_scale.daly_seconds(30_000, 10_000) == 10_000, "a save longer than twice the time between failures"


def test_failures_are_those_of_the_nodes_and_cost_throughput():
    step = predict(4096, workers_per_node=8, node_mtbf_hours=1024, save_seconds=30)
    assert (step.nodes, step.failures_per_hour) == (512, 0.5)
    assert step.save_every == at_scale.daly_seconds(30, 7200)
    assert predict(9, workers_per_node=8).nodes == 2
    calm, failing = (predict(512, save_seconds=60, save_every=600, node_mtbf_hours=mtbf) for mtbf in (math.inf, 100))
    assert calm.images_per_sec == pytest.approx(512 * 32 / calm.step_seconds * 600 / 660)
    assert failing.images_per_sec == pytest.approx(512 * 32 / calm.step_seconds * (1 - failing.time_lost.total))


@given(per_node=st.sampled_from([1, 4, 8]), algorithm=st.sampled_from(["ring", "halving", "best"]),
       save=st.floats(0.01, 300), mtbf=st.floats(100, 1e6), overlap=st.floats(0, 1))
def test_one_worker_loses_nothing_and_more_are_never_more_efficient(per_node, algorithm, save, mtbf, overlap):
    steps = [predict(n, workers_per_node=per_node, algorithm=algorithm, save_seconds=save, node_mtbf_hours=mtbf,
                     overlap=overlap) for n in (1, 2, 8, 64, 512, 4096)]
    assert steps[0].efficiency == 1
    for fewer, more in itertools.pairwise(steps):
        assert more.efficiency <= fewer.efficiency + 1e-9
        assert fewer.time_lost.total - 1e-9 <= more.time_lost.total <= 1


def test_the_model_is_the_one_of_the_published_rows():
    for row in pd.read_csv(ROOT / "data/reference/published_scaling_inputs.csv").itertuples():
        link = (row.latency_seconds, row.link_gbit_per_sec * 1e9 / 8)
        step = at_scale.predict(row.workers, row.batch_size_per_worker / row.one_gpu_images_per_sec, batch_size=1,
                                gradient_bytes=4 * row.parameters, workers_per_node=row.workers_per_node,
                                latency=link[0], bandwidth=link[1])
        assert step.efficiency == pytest.approx(cost_model.predicted_efficiency(
            row.one_gpu_images_per_sec, row.batch_size_per_worker, 4 * row.parameters, row.workers, *link,
            row.workers_per_node))


@pytest.mark.parametrize(("knobs", "message"), [
    ({"workers": 2.5}, "workers is 2.5; it has to be a whole number above 0"),
    ({"step_seconds": [0.1, -0.1]}, "step_seconds has to be the seconds of one worker's steps"),
    ({"bandwidth": 0}, "bandwidth is 0; it has to be above 0"), ({"latency": "low"}, "latency is 'low'"),
    ({"overlap": 1.5}, "overlap is 1.5; .* from 0 to 1"), ({"save_every": 0}, "save_every is 0"),
    ({"algorithm": "star"}, "there is no all-reduce 'star'; choose one of ring, tree, halving, best"),
])
def test_a_parameter_out_of_its_range_is_refused_in_one_line(knobs, message):
    with pytest.raises(LabError, match=message):
        predict(**{"workers": 8} | knobs)


# What docs/five-reports.md says about two reports.

@given(step=st.floats(0.001, 1), nbytes=st.floats(1e3, 1e9), latency=st.floats(0, 1e-2), overlap=st.floats(0, 1),
       bandwidth=st.floats(1e6, 1e12), algorithm=st.sampled_from(["ring", "tree", "halving", "best"]))
def test_from_two_to_four_no_all_reduce_grows_by_less_than_half(step, nbytes, **knobs):
    two, four = (predict(n, step_seconds=step, gradient_bytes=nbytes, **knobs) for n in (2, 4))
    assert four.exposed_seconds >= 1.5 * two.exposed_seconds * (1 - 1e-9)
    if knobs["algorithm"] == "ring" and not knobs["latency"]:
        assert 2 * two.step_seconds / four.step_seconds >= 4 / 3 * (1 - 1e-9), "S(4) / S(2) is at least 4 / 3"


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
    steps = {n: seconds[n] / (40 * 60_000 / 128 / n) for n in (1, 2, 4)}
    assert (steps[4] - steps[1]) / (steps[2] - steps[1]) == pytest.approx(1.18, abs=0.005)
