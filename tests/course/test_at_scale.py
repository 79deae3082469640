"""What thousands of workers cost: against simulations, against limits, and bad input."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.course import at_scale, laws
from labs.results import cost_model
from labs.run.errors import LabError
from labs.run.paths import ROOT

STEPS = 0.02 + np.random.default_rng(0).gamma(2, 0.001, 400)
KNOBS = {"step_seconds": STEPS, "gradient_bytes": 4.8e6, "batch_size": 32}
SIZES = [1, 2, 8, 64, 512, 4096]
CALM = {"node_mtbf_hours": math.inf}


def predict(workers: int, **knobs) -> at_scale.Prediction:
    return at_scale.predict(workers, **KNOBS | knobs)


# The slowest of n.


@pytest.mark.parametrize("workers", [1, 2, 8, 100])
def test_the_slowest_of_n_agrees_with_a_simulation(workers):
    simulated = np.random.default_rng(1).choice(STEPS, (20_000, workers)).max(axis=1)
    error = simulated.std() / math.sqrt(len(simulated))
    assert at_scale.slowest_of(STEPS, workers) == pytest.approx(simulated.mean(), abs=4 * error)
    assert at_scale.simulated_slowest(STEPS, workers, steps=2000) == pytest.approx(simulated.mean(), abs=13 * error)


def test_the_slowest_of_n_at_points_that_are_known():
    assert at_scale.slowest_of([1, 2], 2) == 1.75, "three of four pairs contain a 2"
    assert at_scale.slowest_of([3, 1, 2], 1) == pytest.approx(2), "the mean, in any order"
    assert at_scale.slowest_of(0.5, 4096) == 0.5, "equal steps have no slowest"
    exponential = -np.log1p(-(np.arange(200_000) + 0.5) / 200_000)
    assert at_scale.slowest_of(exponential, 8) == pytest.approx(sum(1 / k for k in range(1, 9)), rel=1e-3)


@given(st.lists(st.floats(1e-4, 10), min_size=1, max_size=50))
def test_the_slowest_of_n_lies_between_the_mean_and_the_slowest_measured(steps):
    slowest = [at_scale.slowest_of(steps, workers) for workers in SIZES]
    assert all(more >= fewer - 1e-12 for fewer, more in itertools.pairwise(slowest))
    assert slowest[0] == pytest.approx(np.mean(steps))
    assert slowest[-1] <= max(steps) * (1 + 1e-9)


def test_a_wait_beyond_the_measurement_is_a_lower_bound():
    assert [predict(workers).wait_is_too_low for workers in (1, 40, 41)] == [False, False, True]
    assert not predict(4096, step_seconds=0.02).wait_is_too_low
    table = at_scale.table((40, 41), **KNOBS)
    assert at_scale.text(table).count(">= ") == 1


# A step: all-reduces, message by message.


def ring(starts: np.ndarray, message: float) -> float:
    """Return when the last worker has finished: each round it waits for its neighbour's message."""
    times = starts
    for _ in range(2 * (len(starts) - 1)):
        times = np.maximum(times, np.roll(times, 1)) + message
    return times.max()


def tree(starts: np.ndarray, message: float) -> float:
    """Return when the last worker has finished: pairs of a binomial tree to rank 0, and back."""
    times, levels = starts.copy(), [2**level for level in range(int(math.log2(len(starts))))]
    for far in levels:
        for rank in range(0, len(times), 2 * far):
            times[rank] = max(times[rank], times[rank + far]) + message
    for far in reversed(levels):
        for rank in range(0, len(times), 2 * far):
            times[rank] = times[rank + far] = times[rank] + message
    return times.max()


@pytest.mark.parametrize("n", [2, 8, 64])
def test_a_step_is_the_slowest_worker_and_then_the_all_reduce(n):
    """Simulated message by message, with workers that begin when their own step is done."""
    nbytes, latency, bandwidth = 4.8e6, 25e-6, 1.25e9
    random = np.random.default_rng(n)
    starts = random.choice(STEPS, (100, n))
    rings = np.array([ring(each, latency + nbytes / n / bandwidth) for each in starts])
    assert rings == pytest.approx(starts.max(axis=1) + cost_model.ring_seconds(nbytes, n, latency, bandwidth))
    trees = np.array([tree(each, latency + nbytes / bandwidth) for each in starts])
    cost = cost_model.tree_seconds(nbytes, n, latency, bandwidth)
    assert (trees <= starts.max(axis=1) + cost + 1e-12).all(), "a late worker near the root delays less"
    assert (trees >= starts.max(axis=1) + cost / 2 - 1e-12).all()
    step = predict(n, algorithm="ring", overlap=0, latency=latency, bandwidth=bandwidth).step_seconds
    assert step == pytest.approx(rings.mean(), abs=4 * rings.std() / math.sqrt(len(rings)))


@pytest.mark.parametrize(("communication", "step", "exposed"), [
    (0.1, 0.3, 0.03),  # The backward pass, 0.2 s, would hide all of it; 70 % can hide.
    (0.1, 0.03, 0.08),  # The backward pass hides no more than its 0.02 s.
    (0, 0.3, 0),
])
def test_what_a_step_hides(communication, step, exposed):
    assert cost_model.exposed_seconds(communication, step, overlap=0.7) == pytest.approx(exposed)


@pytest.mark.parametrize("algorithm", ["ring", "tree", "halving"])
def test_two_levels_win_where_messages_are_many(algorithm):
    def both(**knobs):
        flat, two = (predict(4096, algorithm=algorithm, workers_per_node=per_node, **knobs).allreduce_seconds
                     for per_node in (1, 8))
        return flat, two

    flat, two = both(latency=25e-6)
    assert two < flat or algorithm == "halving"
    flat, two = both(latency=0, bandwidth=10e9)
    assert two > flat or algorithm == "tree", "without latency the ring inside the node is only added"


def test_which_all_reduce_is_fastest_depends_on_the_bytes_and_the_workers():
    def seconds(workers, nbytes):
        return {name: predict(workers, gradient_bytes=nbytes, algorithm=name).allreduce_seconds
                for name in ("ring", "tree", "halving", "best")}

    few, many, tiny = seconds(4, 60e6), seconds(4096, 60e6), seconds(4096, 100)
    assert few["ring"] < few["tree"]
    assert tiny["tree"] < tiny["ring"] / 100
    assert many["ring"] > many["halving"]
    assert all(each["best"] == min(each.values()) for each in (few, many, tiny))


# Failures.


@pytest.mark.parametrize(("every", "save", "restart", "mtbf"), [
    (60, 1, 5, 3600), (300, 60, 120, 1800), (10, 0.07, 4, 400), (1000, 10, 500, 600),
])
def test_the_time_lost_agrees_with_a_simulation(every, save, restart, mtbf):
    lost, simulated = (function(every, save, restart, mtbf) for function in (
        at_scale.time_lost, lambda *args: walked(*args, failures=4000)))
    for name in ("saving", "repeating", "restarting", "total"):
        assert getattr(lost, name) == pytest.approx(getattr(simulated, name), rel=0.1, abs=2e-4)
    quick = at_scale.simulated_time_lost(every, save, restart, mtbf, failures=100_000)
    for name in ("saving", "repeating", "restarting", "total"):
        assert getattr(lost, name) == pytest.approx(getattr(quick, name), rel=0.02, abs=2e-4)


def walked(every: float, save: float, restart: float, mtbf: float, failures: int) -> at_scale.TimeLost:
    """Return the shares of time lost in a job that is simulated phase by phase."""
    exponential = np.random.default_rng(7).exponential
    spent = dict.fromkeys(("restarting", "trained", "saving", "repeating"), 0.0)
    left = exponential(mtbf)
    trained, phases = 0.0, [("trained", every), ("saving", save)]
    while failures:
        for name, seconds in phases:
            if left < seconds:
                spent["restarting" if name == "restarting" else "repeating"] += left + trained
                left, trained, failures = exponential(mtbf), 0.0, failures - 1
                phases = [("restarting", restart)]
                break
            left -= seconds
            if name == "trained":
                trained = seconds
            else:
                spent[name] += seconds
                spent["trained"] += trained
                trained = 0.0
        else:
            phases = [("trained", every), ("saving", save)]
    total = sum(spent.values())
    return at_scale.TimeLost(*(spent[name] / total for name in ("saving", "repeating", "restarting")))


@pytest.mark.parametrize("ratio", [1e-6, 1e-4, 0.01, 0.1, 0.5])
def test_dalys_interval_loses_least(ratio):
    mtbf = 10_000.0
    save = ratio * mtbf

    def lost(every):
        return at_scale.time_lost(every, save, 0, mtbf).total

    daly = at_scale.daly_seconds(save, mtbf)
    least = min(lost(daly * factor) for factor in np.geomspace(0.2, 5, 400))
    assert lost(daly) <= least * 1.001
    assert lost(daly) <= lost(at_scale.young_seconds(save, mtbf)) * (1 + 1e-6)


def test_the_intervals_at_points_that_are_known():
    assert at_scale.young_seconds(50, 10_000) == 1000
    assert at_scale.daly_seconds(1e-6, 1e6) == pytest.approx(at_scale.young_seconds(1e-6, 1e6), rel=1e-5)
    assert at_scale.daly_seconds(30_000, 10_000) == 10_000, "Daly: a save longer than twice the time between failures"
    assert at_scale.failures_per_hour(512, 6400) == 0.08
    assert round(at_scale.NODE_MTBF_HOURS) == 6335
    few = at_scale.time_lost(1000, 5, 60, 1e7)
    assert few.total == pytest.approx(5 / 1005 + 1005 / 2e7 + 60 / 1e7, rel=1e-3), "the first order of textbooks"


def test_the_interval_of_a_job_is_that_of_its_nodes():
    step = predict(4096, workers_per_node=8, node_mtbf_hours=1024, save_seconds=30)
    assert (step.nodes, step.failures_per_hour) == (512, 0.5)
    assert step.save_every == at_scale.daly_seconds(30, 7200)
    assert predict(4096, save_every=600).save_every == 600
    assert predict(3, workers_per_node=8).nodes == 1
    assert predict(9, workers_per_node=8).nodes == 2


def test_the_throughput_includes_the_time_lost():
    calm, failing = (predict(512, save_seconds=60, save_every=600, node_mtbf_hours=mtbf) for mtbf in (math.inf, 100))
    assert calm.images_per_sec == pytest.approx(512 * 32 / calm.step_seconds * 600 / 660)
    assert failing.images_per_sec == pytest.approx(512 * 32 / calm.step_seconds * (1 - failing.time_lost.total))
    assert failing.time_lost.total > 0.2


# Everything together.


def test_one_worker_loses_nothing():
    one = predict(1, **CALM)
    assert (one.wait_seconds, one.allreduce_seconds, one.exposed_seconds, one.time_lost.total) == (0, 0, 0, 0)
    assert one.efficiency == 1
    assert one.images_per_sec == pytest.approx(32 / STEPS.mean())


@given(per_node=st.sampled_from([1, 4, 8]), algorithm=st.sampled_from(["ring", "halving", "best"]),
       save=st.floats(0.01, 300), mtbf=st.floats(100, 1e6), overlap=st.floats(0, 1))
def test_more_workers_are_never_more_efficient(per_node, algorithm, save, mtbf, overlap):
    steps = [predict(n, workers_per_node=per_node, algorithm=algorithm, save_seconds=save, node_mtbf_hours=mtbf,
                     overlap=overlap) for n in SIZES]
    assert steps[0].efficiency == 1
    for fewer, more in itertools.pairwise(steps):
        assert more.efficiency <= fewer.efficiency + 1e-9
        assert more.time_lost.total >= fewer.time_lost.total - 1e-9
        assert 0 < more.time_lost.total <= 1
        assert more.images_per_sec / more.workers <= fewer.images_per_sec / fewer.workers * (1 + 1e-9)


def test_the_model_is_the_one_of_the_published_rows():
    for row in INPUTS.itertuples():
        link = (row.latency_seconds, row.link_gbit_per_sec * 1e9 / 8)
        step = at_scale.predict(row.workers, row.batch_size_per_worker / row.one_gpu_images_per_sec, batch_size=1,
                                gradient_bytes=4 * row.parameters, workers_per_node=row.workers_per_node,
                                latency=link[0], bandwidth=link[1])
        assert step.efficiency == pytest.approx(cost_model.predicted_efficiency(
            row.one_gpu_images_per_sec, row.batch_size_per_worker, 4 * row.parameters, row.workers, *link,
            row.workers_per_node))


@pytest.mark.parametrize(("knobs", "message"), [
    ({"workers": 0}, "workers is 0; it has to be a whole number above 0"),
    ({"workers": 2.5}, "workers is 2.5; it has to be a whole number above 0"),
    ({"workers": "many"}, "workers is 'many'; it has to be a whole number above 0"),
    ({"workers_per_node": 0}, "workers_per_node is 0"), ({"batch_size": -1}, "batch_size is -1"),
    ({"step_seconds": []}, "step_seconds has to be the seconds of one worker's steps"),
    ({"step_seconds": [0.1, -0.1]}, "step_seconds has to be the seconds"),
    ({"step_seconds": [0.1, math.nan]}, "step_seconds has to be the seconds"),
    ({"step_seconds": [[0.1], [0.2]]}, "step_seconds has to be the seconds"),
    ({"step_seconds": "fast"}, "step_seconds has to be a number or a list of numbers"),
    ({"bandwidth": 0}, "bandwidth is 0; it has to be above 0"), ({"latency": -1e-6}, "latency is -1e-06"),
    ({"latency": math.nan}, "latency is nan; it has to be a finite number, not below 0"),
    ({"gradient_bytes": math.inf}, "gradient_bytes is inf"), ({"overlap": 1.5}, "overlap is 1.5; .* from 0 to 1"),
    ({"algorithm": "star"}, "there is no all-reduce 'star'; choose one of ring, tree, halving, best"),
    ({"save_seconds": 0}, "save_seconds is 0"), ({"restart_seconds": -1}, "restart_seconds is -1"),
    ({"node_mtbf_hours": 0}, "node_mtbf_hours is 0"), ({"save_every": 0}, "save_every is 0"),
    ({"save_every": math.inf}, "save_every is inf"),
])
def test_nonsense_is_refused_in_one_line(knobs, message):
    with pytest.raises(LabError, match=message) as refusal:
        predict(**{"workers": 8} | knobs)
    assert "\n" not in str(refusal.value)


# What the model says about the tables in data/reference.


INPUTS = pd.read_csv(ROOT / "data/reference/published_scaling_inputs.csv")
REPORT_C = pd.read_csv(ROOT / "data/reference/lab04_speedup.csv").set_index(["batch_size_per_worker", "workers"])
RESNET18 = 44_695_848
"""Bytes of its gradients."""


def exposed_of_report_c(batch: int, workers: int) -> float:
    """Return by how much a step on several GPUs exceeds one on one GPU, in seconds."""
    steps = {n: REPORT_C.loc[(batch, n), "epoch_seconds"] * batch * n / 50_000 for n in (1, workers)}
    return steps[workers] - steps[1]


@given(step=st.floats(0.001, 10), overlap=st.floats(0, 1), bandwidth=st.floats(1e6, 1e12))
def test_no_ring_without_latency_makes_four_as_slow_as_two(step, overlap, bandwidth):
    """An epoch's S(4) / S(2) is at least 4 / 3: a ring's time grows by half from 2 to 4, a step's by no more."""
    two, four = (predict(n, step_seconds=step, gradient_bytes=RESNET18, latency=0, bandwidth=bandwidth, overlap=overlap,
                         algorithm="ring") for n in (2, 4))
    assert 2 * two.step_seconds / four.step_seconds >= 4 / 3 * (1 - 1e-9)


@given(steps=st.tuples(st.floats(0.001, 10), st.floats(0.001, 10)), workers=st.sampled_from([2, 4]),
       workers_per_node=st.sampled_from([1, 2, 4]), latency=st.floats(0, 1e-2), bandwidth=st.floats(1e6, 1e12),
       overlap=st.floats(0, 1), algorithm=st.sampled_from(["ring", "tree", "halving", "best"]))
def test_no_link_exposes_more_communication_in_a_longer_step(steps, **knobs):
    short, long = (predict(step_seconds=step, gradient_bytes=RESNET18, **knobs) for step in sorted(steps))
    assert long.exposed_seconds <= short.exposed_seconds + 1e-12


def test_report_cs_equal_times_are_not_communication():
    speedups = [REPORT_C.loc[(batch, 2), "epoch_seconds"] / REPORT_C.loc[(batch, 4), "epoch_seconds"]
                for batch in (32, 128, 512)]
    assert max(speedups) < 1.06 < 4 / 3
    exposed = {n: [1e3 * exposed_of_report_c(batch, n) for batch in (32, 128, 512)] for n in (2, 4)}
    assert exposed[2] == pytest.approx([8.3, 37.4, 55.1], abs=0.1)
    assert exposed[4] == pytest.approx([47.8, 133.9, 353.9], abs=0.1)


REPORT_M = {1: 456.14687, 2: 379.69139, 4: 203.63445, 6: 152.0235}
"""Seconds by number of workers; the last run logged the 3,120 steps of six."""


def test_report_ms_speedups_are_not_a_fixed_time():
    speedups = [REPORT_M[1] / REPORT_M[n] for n in (2, 4, 6)]
    assert [round(speedup, 2) for speedup in speedups] == [1.20, 2.24, 3.00]
    assert laws.amdahl_share([2, 4, 6], speedups) == pytest.approx([0.66, 0.26, 0.20], abs=0.005)
    serial = laws.amdahl_share(2, speedups[0])
    assert REPORT_M[1] / laws.amdahl(4, serial) == pytest.approx(341, abs=1), "what S(2) gives; 204 were measured"


@given(step=st.floats(0.001, 1), nbytes=st.floats(1e3, 1e9), latency=st.floats(0, 1e-2), overlap=st.floats(0, 1),
       bandwidth=st.floats(1e6, 1e12), algorithm=st.sampled_from(["ring", "tree", "halving", "best"]))
def test_from_two_to_four_no_all_reduce_grows_by_less_than_half(step, nbytes, **knobs):
    two, four = (predict(n, step_seconds=step, gradient_bytes=nbytes, **knobs).exposed_seconds for n in (2, 4))
    assert four >= 1.5 * two * (1 - 1e-9)


def test_report_ms_step_grows_by_less():
    steps = {n: seconds / (40 * 60_000 / 128 / n) for n, seconds in REPORT_M.items()}
    two, four = (steps[n] - steps[1] for n in (2, 4))
    assert four / two == pytest.approx(1.18, abs=0.005)
