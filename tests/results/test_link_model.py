"""The fit of a link's constants, and the step that they predict: against the formulas' limits."""

from __future__ import annotations

import pytest

from labs.results import cost_model, link_model
from labs.run.errors import LabError

GIGABIT = 1e9 / 8


def rows(n: int, latency: float, bandwidth: float) -> list[dict]:
    """Return all-reduces of a ring over a link with these constants."""
    return [{"bytes": nbytes, "seconds": cost_model.ring_seconds(nbytes, n, latency, bandwidth)}
            for nbytes in (2**18, 2**20, 2**22)]


@pytest.mark.parametrize("n", [2, 8])
def test_a_fit_finds_the_constants_of_a_ring_from_messages_that_depend_on_the_link(n):
    link = link_model.fit([{"bytes": 4, "seconds": 0.05}, *rows(n, 2e-4, GIGABIT)], n)
    assert (link.latency, link.bandwidth) == pytest.approx((2e-4, GIGABIT))


def test_a_fit_weighs_small_and_large_messages_alike():
    """A plain least-squares fit would follow the largest message alone."""
    disturbed = rows(2, 1e-3, GIGABIT)
    disturbed[-1]["seconds"] *= 1.05
    assert link_model.fit(disturbed, 2).latency == pytest.approx(1e-3, rel=0.15)


def test_a_latency_is_never_below_zero():
    link = link_model.fit([{"bytes": 2**18, "seconds": 0.001}, {"bytes": 2**22, "seconds": 0.030}], 2)
    assert link.latency == 0
    assert link.bandwidth > 0


FLAT = [{"bytes": nbytes, "seconds": 1 / nbytes} for nbytes in (2**18, 2**20)]


@pytest.mark.parametrize(("points", "n", "problem"), [
    (rows(2, 0, GIGABIT)[:1], 2, "two sizes"), (rows(2, 0, GIGABIT), 1, "two workers"), (FLAT, 2, "do not grow")])
def test_what_no_link_explains_is_refused(points, n, problem):
    with pytest.raises(LabError, match=problem):
        link_model.fit(points, n)


def over(n: int, gigabits: float, factor: float) -> list[dict]:
    """Return all-reduces that send `factor` times a ring's bytes, each of which costs the processor 1 ns."""
    ring = 2 * (n - 1) / n
    return [{"bytes": nbytes, "bits_per_second": 1e9 * gigabits,
             "seconds": 2 * (n - 1) * 2e-4 + ring * nbytes * (1e-9 + 8 * factor / (1e9 * gigabits))}
            for nbytes in (4, 2**18, 2**20, 2**22)]


@pytest.mark.parametrize(("n", "factor"), [(2, 1.0), (3, 2.25)])
def test_a_link_between_two_others_follows_from_their_all_reduces_whatever_the_algorithm(n, factor):
    """On three nodes Rabenseifner's algorithm sends 3 M over its busiest link, a ring 4/3 M: 2.25 times as much."""
    measured = [*over(n, 0.1, factor), *over(n, 1, factor), *over(n, float("inf"), factor)]
    link = link_model.between(measured, n, 5e8)
    for row in over(n, 0.5, factor):
        assert link.allreduce_seconds(row["bytes"], n) == pytest.approx(row["seconds"])


def test_one_link_says_nothing_of_another():
    with pytest.raises(LabError, match="two links"):
        link_model.between(over(2, 1, 1.0), 2, 5e8)


FAST = link_model.Link(0.0, 1e18)


def step(ready: float, megabytes: float, link=None, unlimited=FAST, update: float = 0.0, busy=None) -> float:
    """Return the predicted seconds of a step of 0.1 s of computation on two nodes with links of 1 Gbit/s."""
    cell = {"alone_seconds": 0.1, "ready_seconds": ready, "computed_seconds": 0.1 - update,
            "gradient_bytes": megabytes * 1e6}
    return link_model.step(cell, 2, link or link_model.Link(0.0, GIGABIT), unlimited, busy or unlimited)


def test_a_step_hides_what_fits_behind_the_rest_of_the_computation():
    assert step(0.05, 5) == pytest.approx(0.1)  # 40 ms to send, 50 ms to hide them.
    assert step(0.05, 12.5) == pytest.approx(0.15)  # 100 ms to send.
    assert step(0.10, 5) == pytest.approx(0.14)  # Nothing is left to compute.


def test_what_an_exchange_needs_of_the_processor_hides_nowhere():
    unlimited = link_model.Link(0.0, 1e9)
    assert step(0.05, 10, link_model.Link(0.0, 1e9), unlimited) == pytest.approx(0.11)
    # 80 ms, of which 10 ms the processor's; 50 ms of the rest hide.
    assert step(0.05, 10, unlimited=unlimited) == pytest.approx(0.1 + 0.01 + 0.02)


def test_an_exchange_waits_for_a_busy_core_before_it_hides():
    busy = link_model.Link(0.005, 1e18)  # 2 messages of 5 ms.
    assert step(0.05, 12.5, busy=busy) == pytest.approx(0.1 + 0.1 - 0.04)
    assert step(0.095, 12.5, busy=busy) == pytest.approx(0.1 + 0.1), "the window is never negative"


def test_a_machine_at_half_its_speed_computes_for_twice_as_long():
    cell = {"alone_seconds": 0.1, "ready_seconds": 0.05, "computed_seconds": 0.1, "gradient_bytes": 12.5e6}
    link = link_model.Link(0.0, GIGABIT)
    assert link_model.step(cell, 2, link, FAST, FAST, alone=0.2) == pytest.approx(0.2)  # 100 ms to send and to hide.


def test_an_update_hides_nothing_because_it_needs_the_averaged_gradients():
    assert step(0.05, 12.5, update=0.02) == pytest.approx(0.17)


def test_errors_are_relative_to_what_was_measured():
    cells = [{"predicted_seconds": predicted, "step_seconds": 1.0} for predicted in (1.0, 1.1, 0.8)]
    assert link_model.errors(cells) == pytest.approx({"cells": 3, "median": 0.1, "within_15": 2 / 3, "largest": 0.2})
