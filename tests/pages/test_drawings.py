"""Drawings: each is made, and what it shows is computed."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest

from labs.pages import drawings
from labs.run.errors import LabError

STEPS = [[[("4", 5.0, 5.02), ("all-reduce", 5.02, 5.03 + late), ("3", 5.02, 5.04)] for late in lates]
         for lates in ((0.5, 0.03, 0.01), (0.0, 0.0, 0.0))]
"""Bars of three steps of two ranks, in seconds."""


def bowl(first, second):
    return 0.5 * first**2 + 3 * second**2


TRACKS = [[(3, 1.5), (1, 0.2), (0.4, -0.1)], [(3, 1.5), (1.6, -0.4), (0.9, 0.3)]]
PANELS = {"no broadcast": TRACKS, "no all-reduce": TRACKS, "both": [TRACKS[0]] * 2}
EXAMPLES = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [2.0, 1.0]]), np.array([[2.0], [1.0], [-2.0], [3.0]])


@pytest.mark.parametrize("draw", [
    lambda: drawings.step_cost(0.006, 0.0004, [1, 8, 32, 128, 256, 512, 1024, 8192]),
    lambda: drawings.data_parallel(1), lambda: drawings.data_parallel(8), lambda: drawings.ring(2),
    lambda: drawings.ring(5), drawings.topologies, lambda: drawings.topologies([4, 4**14], 2, 25e-6, 8e-9),
    lambda: drawings.epoch_over_time(0.02, 0.001, 0.0, 4, 12), lambda: drawings.weak_and_strong(128, [2, 8]),
    lambda: drawings.node_cuts(), lambda: drawings.node_cuts(16, [2, 8]),
    lambda: drawings.one_or_two(0.0, 0.05, {"one link": 2.0}),
    lambda: drawings.step_bars({"one": drawings.typical(STEPS)}),
    lambda: drawings.loss_paths(TRACKS, bowl), lambda: drawings.loss_paths(PANELS, bowl),
    lambda: drawings.least_squares_paths(PANELS, *EXAMPLES),
])
def test_a_figure_can_be_drawn_and_is_as_wide_as_a_page(draw):
    figure = draw()
    figure.savefig(io.BytesIO(), format="png")
    assert figure.get_size_inches()[0] == drawings.WIDTH


@pytest.mark.parametrize(("draw", "why"), [
    (lambda: drawings.ring(6), "shows 2 to 5 ranks, not 6"), (lambda: drawings.data_parallel(9), "1 to 8 ranks"),
    (lambda: drawings.epoch_over_time(1, 1, 1, 2, 13), "2 to 12 steps"),
    (lambda: drawings.weak_and_strong(3), "cannot be divided among 2"),
    (lambda: drawings.node_cuts(6), "4 processes cannot share 6 cores evenly"),
    (lambda: drawings.ring_steps([[1, 2], [1, 2, 3]]), "all of the same shape"),
    (lambda: drawings.messages("halving-doubling", 6), "pairs 2, 4, 8 ... ranks, not 6"),
    (lambda: drawings.loss_paths([[1, 2, 3]], bowl), "two columns"),
])
def test_what_cannot_be_shown_is_refused_in_one_line(draw, why):
    with pytest.raises(LabError, match=why):
        draw()


def test_a_step_is_a_bar_of_its_fixed_cost_and_a_bar_of_its_images():
    axes = drawings.step_cost(0.006, 0.0004, [8, 128]).axes[0]
    assert [[bar.get_width() for bar in bars] for bars in axes.containers] == [
        pytest.approx([6, 6]), pytest.approx([3.2, 51.2])], "milliseconds"
    assert [text.get_text() for text in axes.texts] == ["870 images/s; 65% fixed", "2,238 images/s; 10% fixed"]
    assert "2,500 images/s" in axes.get_title()


def test_an_epoch_divides_compute_and_neither_communication_nor_start():
    axes = drawings.epoch_over_time(1.0, 0.25, 0.3, 2, 5).axes[0]
    seconds = {}
    for bar in axes.patches:
        seconds[bar.get_y()] = seconds.get(bar.get_y(), 0) + bar.get_width()
    assert list(seconds.values()) == pytest.approx([5.3, 0.3 + 3 * 1.25, 0.3 + 3 * 1.25]), "three steps: rounded up"
    assert axes.get_title() == "T(1) = 5.3 s, T(2) = 4.05 s: S(2) = 1.31, not 2"


def test_weak_scaling_holds_a_workers_images_and_strong_scaling_those_of_all():
    weak, strong = drawings.weak_and_strong(128, [1, 2, 4]).axes
    for axes, totals in ((weak, [128, 256, 512]), (strong, [128] * 3)):
        images = {}
        for bar in axes.patches:
            images.setdefault(bar.get_y(), []).append(bar.get_width())
        assert [(len(each), sum(each)) for each in images.values()] == list(zip((1, 2, 4), totals, strict=True))


@pytest.mark.parametrize("n", [1, 3, 4])
def test_a_ring_ends_with_the_sum_on_all_ranks_and_sends_the_least(n):
    values = np.random.default_rng(n).integers(-100, 100, (n, 12))
    before = values.copy()
    states = drawings.ring_steps(list(values))
    assert [state.phase for state in states] == ["start"] + ["reduce-scatter"] * (n - 1) + ["all-gather"] * (n - 1)
    assert (states[-1].values == before.sum(axis=0)).all()
    assert (values == before).all(), "the caller's arrays are left alone"
    assert (states[-1].sent_bytes == 2 * (n - 1) / n * values[0].nbytes).all()


def test_after_the_reduce_scatter_each_rank_has_one_complete_chunk():
    middle = drawings.ring_steps([np.full(4, 10**rank) for rank in range(4)])[3].values
    assert [np.flatnonzero(row == 1111).tolist() for row in middle] == [[1], [2], [3], [0]]


def test_a_ring_has_a_panel_for_each_step_with_a_stripe_for_each_rank_in_a_sum():
    figure = drawings.ring(4)
    assert [axes.get_title().rpartition(": ")[2] for axes in figure.axes] == [f"{step}/4 M" for step in range(1, 7)]
    assert "6/4 M" in figure.get_suptitle()
    states = drawings.ring_steps([np.tile(np.eye(4, dtype=int)[rank], (4, 1)) for rank in range(4)])
    stripes = [sum(each.get_label().startswith("rank") for each in axes.patches) for axes in figure.axes]
    assert stripes == [int((state.values > 0).sum()) for state in states[1:]]


@pytest.mark.parametrize(("topology", "n"), [(topology, n) for topology in drawings.COSTS for n in (2, 6, 8)
                                             if (topology, n) != ("halving-doubling", 6)])
def test_messages_of_a_topology_reduce_and_agree_with_its_formula(topology, n):
    """Carry out the messages on sets of ranks: in the end every rank has heard of all others."""
    known = [[{rank} for _ in range(n)] for rank in range(n)]  # By rank and chunk.
    for number, step in enumerate(drawings.messages(topology, n)):
        sent = [(source, target, [set(known[source][chunk]) for chunk in range(n)]) for source, target, _ in step]
        for source, target, chunks in sent:
            for chunk in ([(source - number) % n] if topology == "ring" else range(n)):
                known[target][chunk] |= chunks[chunk]
    assert all(each == set(range(n)) for row in known for each in row)
    row = drawings.topology_table(1e6, n, 50e-6, 8e-10).loc[topology]
    assert row["seconds"] == pytest.approx(drawings.COSTS[topology](1e6, n, 50e-6, 1.25e9))
    assert row["bytes_sent"] == pytest.approx(2 * (n - 1) * 1e6), "no all-reduce by messages to one rank sends fewer"


def test_halving_doubling_has_a_trees_messages_and_a_rings_bytes():
    table = drawings.topology_table(44.7e6, 8)
    assert table.loc["halving-doubling", "steps"] == table.loc["tree", "steps"] == 6
    assert table.loc["halving-doubling", "most_bytes_sent"] == pytest.approx(table.loc["ring", "most_bytes_sent"])
    assert "halving-doubling" not in drawings.topology_table(1e6, 6).index


def test_the_tree_wins_below_the_size_in_the_title_and_the_ring_above():
    tree, ring = (np.array([drawings.COSTS[name](size, 8, 50e-6, 1.25e9) for size in (117_000, 119_000)])
                  for name in ("tree", "ring"))
    assert (tree < ring).tolist() == [True, False]
    assert "118 kB" in drawings.topologies(None, 8, 50e-6, 8e-10).axes[0].get_title()


def test_the_step_of_median_length_has_a_bar_for_each_computation_and_each_all_reduce():
    first, second = drawings.typical(STEPS)
    assert first == [("4", 0.0, pytest.approx(20)), ("all-reduce", pytest.approx(20), pytest.approx(60)),
                     ("3", pytest.approx(20), pytest.approx(40))]
    (axes,) = drawings.step_bars({"overlap": [first, second]}).axes
    assert axes.get_title(loc="left") == "overlap: 60 ms"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 1"]
    assert [bar.get_width() for bar in axes.patches[:3]] == pytest.approx([20, 40, 20])
    assert [text.get_text() for text in axes.texts] == ["4", "3"] * 2


def test_paths_of_ranks_that_exchange_are_one():
    apart, together = drawings.loss_paths(TRACKS, bowl), drawings.loss_paths([TRACKS[0]] * 3, bowl)
    assert f"{math.dist(TRACKS[0][-1], TRACKS[1][-1]):.2g} apart" in apart.axes[0].get_title()
    assert "at most 0 apart" in together.axes[0].get_title()
    panels = drawings.loss_paths(PANELS, bowl).axes
    assert [axes.get_title().endswith(" 0 apart") for axes in panels] == [False, False, True]


def test_each_rank_has_the_minimum_of_its_own_examples():
    x, y = EXAMPLES
    axes = drawings.least_squares_paths(PANELS, x, y).axes[0]
    drawn = {line.get_label(): np.ravel(line.get_data()) for line in axes.lines}
    np.testing.assert_allclose(drawn["best for rank 0's examples"], [2, -2], atol=1e-9)
    np.testing.assert_allclose(drawn["best for all examples"], [7 / 3, -5 / 3])
    assert "best for rank 1's examples" in [text.get_text() for text in axes.figure.axes[-1].get_legend().get_texts()]
