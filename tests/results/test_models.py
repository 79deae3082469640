"""The cost model of an all-reduce against its formulas and what was published; the fit of a link, and its steps."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.results import cost_model, link_model
from labs.run.errors import LabError
from labs.run.paths import ROOT

GIGABIT = 1e9 / 8
LINK = {"latency": st.floats(0, 1e-3), "bandwidth": st.floats(1e7, 1e11)}


@given(nbytes=st.floats(1, 1e9), **LINK)
def test_collectives_cost_what_the_model_says(nbytes, latency, bandwidth):
    for cost in cost_model.ALGORITHMS.values():
        assert cost(nbytes, 1, latency, bandwidth) == 0
        assert cost(nbytes, 2, latency, bandwidth) <= cost(2 * nbytes, 2, latency, bandwidth)
    assert cost_model.ring_seconds(nbytes, 8, 0, bandwidth) == pytest.approx(1.75 * nbytes / bandwidth)
    assert cost_model.ring_seconds(0, 8, latency, bandwidth) == pytest.approx(14 * latency)
    assert cost_model.tree_seconds(0, 8, latency, bandwidth) == pytest.approx(6 * latency)
    ring, tree, halving, best = (cost(nbytes, 64, latency, bandwidth) for cost in cost_model.ALGORITHMS.values())
    assert best == min(ring, tree, halving)


@given(throughput=st.floats(1, 1e5), batch=st.sampled_from([1, 32, 512]), nbytes=st.floats(1e3, 1e9),
       per_node=st.sampled_from([1, 4, 8]), overlap=st.floats(0, 1),
       algorithm=st.sampled_from(["ring", "halving", "best"]), **LINK)
def test_the_model_is_monotonous(throughput, batch, nbytes, per_node, overlap, algorithm, latency, bandwidth):
    def predict(workers=64, scale=1.0, hidden=overlap):
        return cost_model.predicted_efficiency(throughput, batch, nbytes, workers, latency, bandwidth * scale, per_node,
                                               hidden, algorithm=algorithm)

    efficiencies = [predict(workers) for workers in (1, 2, 8, 64, 512, 4096)]
    assert efficiencies[0] == 1
    assert all(0 < more <= fewer + 1e-9 for fewer, more in itertools.pairwise(efficiencies))
    assert predict(scale=2) >= predict() - 1e-12, "a faster network"
    assert predict(hidden=1) >= predict() - 1e-12 >= predict(hidden=0) - 2e-12, "more of it hidden"


@pytest.mark.parametrize("constants", [
    {}, {"overlap": 0.5}, {"overlap": 0.8}, {"algorithm": "ring"}, {"local_bandwidth": 5e9}, {"local_bandwidth": 2e10}])
def test_the_published_rows_are_met_within_10_points_but_not_without_overlap(constants):
    inputs = pd.read_csv(ROOT / "data/reference/published_scaling_inputs.csv")

    def errors(**constants) -> pd.Series:
        return inputs["scaling_efficiency"] - [cost_model.predicted_efficiency(
            row.one_gpu_images_per_sec, row.batch_size_per_worker, 4 * row.parameters, row.workers,
            row.latency_seconds, row.link_gbit_per_sec * 1e9 / 8, row.workers_per_node, **constants)
            for row in inputs.itertuples()]

    published = len(pd.read_csv(ROOT / "data/reference/published_scaling.csv"))
    assert errors(**constants).head(published if constants else None).abs().max() < 0.10
    assert errors(overlap=0).abs().max() > 0.15


def over(n: int, gigabits: float, factor: float = 1.0, processor: float = 0.0) -> list[dict]:
    """Return all-reduces that send `factor` times a ring's bytes, each of which costs the processor some seconds."""
    ring = 2 * (n - 1) / n
    return [{"bytes": nbytes, "bits_per_second": 1e9 * gigabits,
             "seconds": 2 * (n - 1) * 2e-4 + ring * nbytes * (processor + 8 * factor / (1e9 * gigabits))}
            for nbytes in (2**18, 2**20, 2**22)]


@pytest.mark.parametrize("n", [2, 8])
def test_a_fit_finds_the_constants_of_a_link(n):
    link = link_model.fit([{"bytes": 4, "seconds": 0.05}, *over(n, 1)], n)  # Small messages take Horovod's cycle.
    assert (link.latency, link.bandwidth) == pytest.approx((2e-4, GIGABIT))
    disturbed = over(2, 1)
    disturbed[-1]["seconds"] *= 1.05  # A plain least-squares fit would follow the largest message alone.
    assert link_model.fit(disturbed, 2).latency == pytest.approx(2e-4, rel=0.5)
    flat = link_model.fit([{"bytes": 2**18, "seconds": 0.001}, {"bytes": 2**22, "seconds": 0.030}], 2)
    assert flat.latency == 0 < flat.bandwidth


@pytest.mark.parametrize(("n", "factor"), [(2, 1.0), (3, 2.25)])
def test_a_link_between_two_others_follows_from_their_all_reduces_whatever_the_algorithm(n, factor):
    """On three nodes Rabenseifner's algorithm sends 3 M over its busiest link, a ring 4/3 M: 2.25 times as much."""
    link = link_model.between([row for each in (0.1, 1, float("inf")) for row in over(n, each, factor, 1e-9)], n, 5e8)
    for row in over(n, 0.5, factor, 1e-9):
        assert link.allreduce_seconds(row["bytes"], n) == pytest.approx(row["seconds"])


@pytest.mark.parametrize(("call", "problem"), [
    (lambda: link_model.fit(over(2, 1)[:1], 2), "two sizes"),
    (lambda: link_model.fit(over(2, 1), 1), "two workers"),
    (lambda: link_model.fit([{"bytes": each, "seconds": 1 / each} for each in (2**18, 2**20)], 2), "do not grow"),
    (lambda: link_model.between(over(2, 1), 2, 5e8), "two links"),
])
def test_what_no_link_explains_is_refused(call, problem):
    with pytest.raises(LabError, match=problem):
        call()


FAST, SLOW = link_model.Link(0.0, 1e18), link_model.Link(0.0, GIGABIT)


@pytest.mark.parametrize(("ready", "megabytes", "links", "seconds"), [  # 0.1 s of computation on two nodes.
    (0.05, 5, {}, 0.1),  # 40 ms to send, 50 ms to hide them.
    (0.05, 12.5, {}, 0.15),  # 100 ms to send.
    (0.10, 5, {}, 0.14),  # Nothing is left to compute.
    (0.05, 10, {"unlimited": link_model.Link(0.0, 1e9)}, 0.13),  # 80 ms; 10 are the processor's; 50 of the rest hide.
    (0.05, 12.5, {"busy": link_model.Link(0.005, 1e18)}, 0.16),  # The exchange waits for a busy core: 2 x 5 ms.
    (0.095, 12.5, {"busy": link_model.Link(0.005, 1e18)}, 0.2),  # The window is never negative.
    (0.05, 12.5, {"alone": 0.2}, 0.2),  # At half its speed: 100 ms to send and to hide.
])
def test_a_step_hides_what_fits_behind_the_rest_of_the_computation(ready, megabytes, links, seconds):
    cell = {"alone_seconds": 0.1, "ready_seconds": ready, "computed_seconds": 0.1, "gradient_bytes": megabytes * 1e6}
    links = {"unlimited": FAST, "busy": links.get("unlimited", FAST)} | links
    assert link_model.step(cell, 2, SLOW, **links) == pytest.approx(seconds)


def test_errors_are_relative_to_what_was_measured():
    cells = [{"predicted_seconds": predicted, "step_seconds": 1.0} for predicted in (1.0, 1.1, 0.8)]
    assert link_model.errors(cells) == pytest.approx({"cells": 3, "median": 0.1, "within_15": 2 / 3, "largest": 0.2})
