"""Models of an all-reduce and of a step: what the formulas say, published rows, and links that are fitted."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.pages import at_scale
from labs.results import cost_model, link_model
from labs.run.paths import ROOT

GIGABIT = 1e9 / 8


@given(nbytes=st.floats(1, 1e9), latency=st.floats(0, 1e-3), bandwidth=st.floats(1e7, 1e11))
def test_collectives_cost_what_the_model_says(nbytes, latency, bandwidth):
    assert all(cost(nbytes, 1, latency, bandwidth) == 0 for cost in cost_model.ALGORITHMS.values())
    assert cost_model.ring_seconds(nbytes, 8, 0, bandwidth) == pytest.approx(1.75 * nbytes / bandwidth)
    assert cost_model.ring_seconds(0, 8, latency, bandwidth) == pytest.approx(14 * latency)
    assert cost_model.tree_seconds(0, 8, latency, bandwidth) == pytest.approx(6 * latency)


@pytest.mark.parametrize("overlap", [0.5, cost_model.OVERLAP, 0.8, 0.0])
def test_the_published_rows_are_met_within_10_points_but_not_without_overlap(overlap):
    inputs = pd.read_csv(ROOT / "data/reference/published_scaling_inputs.csv")
    predicted = [at_scale.predict(row.workers, row.batch_size_per_worker / row.one_gpu_images_per_sec,
                                  4 * row.parameters, row.workers_per_node, row.latency_seconds,
                                  row.link_gbit_per_sec * GIGABIT, overlap=overlap).efficiency
                 for row in inputs.itertuples()]
    errors = (inputs["scaling_efficiency"] - predicted).abs()
    published = len(pd.read_csv(ROOT / "data/reference/published_scaling.csv"))
    assert errors.head(published).max() < 0.10 if overlap else errors.max() > 0.15


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


@pytest.mark.parametrize(("n", "factor"), [(2, 1.0), (3, 2.25)])
def test_a_link_between_two_others_follows_from_their_all_reduces_whatever_the_algorithm(n, factor):
    """On three nodes Rabenseifner's algorithm sends 3 M over its busiest link, a ring 4/3 M: 2.25 times as much."""
    link = link_model.between([row for each in (0.1, 1, float("inf")) for row in over(n, each, factor, 1e-9)], n, 5e8)
    for row in over(n, 0.5, factor, 1e-9):
        assert link.allreduce_seconds(row["bytes"], n) == pytest.approx(row["seconds"])


FAST, SLOW = link_model.Link(0.0, 1e18), link_model.Link(0.0, GIGABIT)


@pytest.mark.parametrize(("ready", "megabytes", "links", "seconds"), [  # 0.1 s of computation on two nodes.
    (0.05, 5, {}, 0.1),  # 40 ms to send, 50 ms to hide them.
    (0.05, 12.5, {}, 0.15),  # 100 ms to send.
    (0.05, 10, {"unlimited": link_model.Link(0.0, 1e9)}, 0.13),  # 80 ms; 10 are the processor's; 50 of the rest hide.
    (0.05, 12.5, {"busy": link_model.Link(0.005, 1e18)}, 0.16),  # The exchange waits for a busy core: 2 x 5 ms.
    (0.095, 12.5, {"busy": link_model.Link(0.005, 1e18)}, 0.2),  # The window is never negative.
    (0.05, 12.5, {"alone": 0.2}, 0.2),  # At half its speed: 100 ms to send and to hide.
])
def test_a_step_hides_what_fits_behind_the_rest_of_the_computation(ready, megabytes, links, seconds):
    cell = {"alone_seconds": 0.1, "ready_seconds": ready, "computed_seconds": 0.1, "gradient_bytes": megabytes * 1e6}
    links = {"unlimited": FAST, "busy": links.get("unlimited", FAST)} | links
    assert link_model.step(cell, 2, SLOW, **links) == pytest.approx(seconds)
