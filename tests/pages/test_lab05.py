"""Page 5: a ring by hand, and runs over links, from the committed reference runs of `labs cluster`."""

from __future__ import annotations

import numpy as np
import pytest

from labs.pages import lab05, lab07
from labs.results import reference
from labs.run.errors import LabError

CLUSTER = "laptop-cluster"


@pytest.fixture(scope="module")
def steps() -> list[dict]:
    """The runs of lab 5's study of bandwidth; those of November 2026 are of lab 11, where it was then."""
    return [run for lab in ("lab05_allreduce", "lab11_multinode") for run in reference.read_all(CLUSTER, lab)
            if run["config"]["study"] == "bandwidth"]


@pytest.fixture(scope="module")
def allreduces() -> list[dict]:
    """The runs of lab 5's study of links."""
    return [run for run in reference.read_all(CLUSTER, "lab05_allreduce") if run["config"]["study"] == "links"]


@pytest.mark.parametrize("n", [1, 3, 4])
def test_a_ring_ends_with_the_sum_on_all_ranks_and_sends_the_least(n):
    values = np.random.default_rng(n).integers(-100, 100, (n, 12))
    before = values.copy()
    states = lab05.ring_steps(list(values))
    assert len(states) == 1 + 2 * (n - 1)
    assert (states[-1].values == before.sum(axis=0)).all()
    assert (values == before).all(), "the caller's arrays are left alone"
    assert (states[-1].sent_bytes == 2 * (n - 1) / n * values[0].nbytes).all()


def test_after_the_reduce_scatter_each_rank_has_one_complete_chunk():
    middle = lab05.ring_steps([np.full(4, 10**rank) for rank in range(4)])[3].values
    assert [np.flatnonzero(row == 1111).tolist() for row in middle] == [[1], [2], [3], [0]]


def test_the_tree_wins_below_the_size_in_the_drawing_and_the_ring_above():
    small, large = (lab05.topology_seconds(size) for size in (117_000, 119_000))
    assert small["tree"] < small["ring"]
    assert large["tree"] > large["ring"]


def test_the_step_of_median_length_has_the_bars_of_all_ranks():
    steps = [[[("4", 5.0, 5.02), ("all-reduce", 5.02, 5.03 + late), ("3", 5.02, 5.04)] for late in lates]
             for lates in ((0.5, 0.03, 0.01), (0.0, 0.0, 0.0))]  # Three steps of two ranks, in seconds.
    first, second = lab05.median_step(steps)
    assert first == [("4", 0.0, pytest.approx(20)), ("all-reduce", pytest.approx(20), pytest.approx(60)),
                     ("3", pytest.approx(20), pytest.approx(40))]
    (axes,) = lab05.step_figure({"overlap": [first, second]}).axes
    assert [bar.get_width() for bar in axes.patches[:3]] == pytest.approx([20, 40, 20])


def test_the_reference_steps_are_predicted_as_the_page_says(steps):
    cells = lab05.rows_of(steps, "cells")
    cells = cells[cells["nodes"].isin([2, 4, 8])]  # On three nodes they are not: the page says so.
    assert len(cells) >= 60
    assert set(cells["nodes"]) == {2, 4, 8}
    errors = (cells["predicted_in_turn_seconds"] / cells["step_seconds"] - 1).abs()
    assert errors.median() < 0.05
    assert errors[cells["nodes"] == 2].max() < 0.15, "with a core for each node"
    assert (errors <= 0.15).mean() > 0.9


def test_a_slow_link_is_used_almost_whole_and_carries_a_rings_bytes(allreduces):
    shares = lab05.link_shares(allreduces)
    slow = shares[(shares["megabits"] <= 100) & (shares["backend"] == "MPI") & (shares["nodes"] == 2)]
    assert (slow["share"] > 0.8).all()
    assert (slow["share"] < 1.02).all()
    assert slow["bytes_over_ring"].between(0.98, 1.1).all()


def test_steps_over_links_that_the_fit_has_not_seen_are_predicted_within_five_percent(steps):
    table = lab05.predict_other_links(steps)
    assert table["nodes"].value_counts().to_dict() == {2: 12, 3: 12, 4: 12, 8: 12}
    assert table["bandwidth"].isin(["500mbit", "1gbit"]).all(), "between the slowest and the fastest"
    for _, rows in table[table["nodes"].isin([2, 4, 8])].groupby("nodes"):
        assert rows["error"].abs().median() < 0.05


def test_a_verdict_names_the_nodes_on_which_the_model_does_not_hold(steps):
    table = lab05.predict_other_links(steps)
    table = table[table["nodes"].isin([2, 4, 8])]
    assert "fails" not in lab05.prediction_text(table)
    table.loc[table["nodes"] == 8, ["error", "error_in_turn"]] = -0.3
    text = lab05.prediction_text(table)
    assert "30.0 % on 8 nodes; the largest is 30 %." in text
    assert "**On 8 nodes the model fails**: 12 of 12 steps took longer than predicted, and not because" in text


def test_where_nodes_are_not_two_four_or_eight_the_model_fails(steps):
    assert "**On 3 nodes the model fails**: 11 of 12 steps" in lab05.prediction_text(lab05.predict_other_links(steps))


def test_the_parts_of_a_step_add_up_to_its_prediction(steps):
    table = lab05.predict_other_links(steps)
    exposed = (table["wire"] - table["window"]).clip(lower=0)
    assert (table["alone"] + table["processor"] + exposed).to_list() == pytest.approx(table["unseen_seconds"].to_list())


def test_alpha_and_beta_of_an_emulated_link_predict_messages_that_they_were_not_fitted_to(allreduces):
    """On the machine's shared memory they missed by 43 and 24 %."""
    times = lab05.time_table(allreduces, "100mbit")
    empty, mebibyte = times["raw MPI"][[8, 2**20]]
    beta = (mebibyte - empty) / 2**20
    for nbytes in (2**16, 2**18, 2**22):
        assert empty + beta * nbytes == pytest.approx(times["raw MPI"][nbytes], rel=0.05)


def test_gloo_costs_more_at_small_messages_on_more_than_two_nodes(allreduces):
    table = lab05.table_by_nodes(allreduces, "100mbit")
    assert list(table.index.unique("size")) == ["4 bytes per node", "256 KiB", "4 MiB"]
    small = table.loc["4 bytes per node"].loc[[4, 8]]
    assert (small["Gloo"] > 5 * small["MPI"]).all()
    assert table.loc[("256 KiB", 4), "Gloo"] > 2 * table.loc[("256 KiB", 4), "MPI"]
    assert table.loc[("4 MiB", 8), "Gloo"] < table.loc[("4 MiB", 8), "MPI"]


@pytest.fixture(scope="module")
def largest() -> list[dict]:
    """The runs of lab 7 with its largest model."""
    return [run for run in reference.read_all(CLUSTER, "lab07_vit") if run["config"]["width"] == 256]


def test_one_node_is_one_baseline_whatever_its_link(largest):
    rows = lab07.step_table(largest)
    alone = rows[(rows["N"] == 1) & (rows["B"] == 32)]["seconds"]
    assert len(alone) >= 8
    table = lab07.second_node_speedups(rows).query("B == 32").set_index("link")
    both = rows[(rows["N"] == 2) & (rows["B"] == 32) & (rows["disturbed"] == "")].groupby("link")["seconds"].median()
    assert table.index.tolist() == [5e7, 2e8, 1e9, 1e10]
    assert table["speedup"].to_dict() == pytest.approx((alone.median() / both).to_dict(), rel=0.03)
    assert (table["speedup_low"] < table["speedup"]).all()
    assert table["speedup"].is_monotonic_increasing


def test_the_transports_are_compared_on_each_link(allreduces):
    table = lab07.compare_backends(allreduces, 4 * 2**20)
    assert list(table.index) == ["50mbit", "100mbit", "200mbit", "500mbit", "1gbit", "2gbit", "5gbit", "10gbit"]
    assert table["MPI"].is_monotonic_decreasing
    assert table["Gloo / MPI"][:"1gbit"].between(0.9, 1.2).all()


def test_runs_of_several_model_sizes_are_not_one_baseline():
    with pytest.raises(LabError, match="one model size"):
        lab07.step_table(reference.read_all(CLUSTER, "lab07_vit"))


def test_runs_without_such_a_table_are_refused_with_the_command(allreduces):
    with pytest.raises(LabError, match="labs cluster sweep LAB --preset cluster"):
        lab05.rows_of(allreduces, "cells")
