"""Tables and figures of runs over links, from the committed reference runs of `labs cluster`."""

from __future__ import annotations

import pytest

from labs.course import layouts, over_links
from labs.results import reference
from labs.run.errors import LabError

CLUSTER = "laptop-cluster"


@pytest.fixture(scope="module")
def steps() -> list[dict]:
    """The runs of lab 11's study of bandwidth."""
    return [run for run in reference.read_all(CLUSTER, "lab11_multinode") if run["config"]["study"] == "bandwidth"]


@pytest.fixture(scope="module")
def allreduces() -> list[dict]:
    """The runs of lab 5's study of links."""
    return reference.read_all(CLUSTER, "lab05_allreduce")


def labels(axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_reference_steps_are_predicted_as_the_page_says(steps):
    cells = over_links.cells(steps)
    assert len(cells) >= 60
    assert set(cells["nodes"]) == {2, 4, 8}
    errors = (cells["predicted_in_turn_seconds"] / cells["step_seconds"] - 1).abs()
    assert errors.median() < 0.05
    assert errors[cells["nodes"] == 2].max() < 0.15, "with a core for each node"
    assert (errors <= 0.15).mean() > 0.9


def test_each_point_of_the_predictions_is_a_cell(steps):
    (axes,) = over_links.prediction_figure(steps).axes
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert sum(len(line.get_xdata()) for line in points) == len(over_links.cells(steps))
    assert labels(axes) == ["within 15 %", "2 nodes", "4 nodes", "8 nodes"]


def test_each_backend_has_a_panel_and_each_number_of_nodes_a_line(allreduces):
    figure = over_links.share_figure(allreduces)
    assert [axes.get_title() for axes in figure.axes] == ["over MPI", "over Gloo"]
    assert labels(figure.axes[-1]) == ["2 nodes", "4 nodes", "8 nodes", "the link"]
    assert all(axes.get_xlabel() == "bandwidth of each link (Mbit/s)" for axes in figure.axes)


def test_a_slow_link_is_used_almost_whole_and_carries_a_rings_bytes(allreduces):
    shares = over_links.shares(allreduces)
    slow = shares[(shares["megabits"] <= 100) & (shares["backend"] == "MPI") & (shares["nodes"] == 2)]
    assert (slow["share"] > 0.8).all()
    assert (slow["share"] < 1.02).all()
    assert slow["bytes_over_ring"].between(0.98, 1.1).all()


def test_an_all_reduce_takes_longer_over_each_slower_link(allreduces):
    (axes,) = over_links.time_figure([run for run in allreduces if run["layout"]["backend"] == "MPI"], nodes=2).axes
    points = {line.get_label(): max(line.get_ydata()) for line in axes.lines if line.get_marker() == "o"}
    assert list(points)[:5] == ["50 Mbit/s", "100 Mbit/s", "200 Mbit/s", "500 Mbit/s", "1 Gbit/s"]
    assert [*points.values()][:5] == sorted([*points.values()][:5], reverse=True)


@pytest.fixture(scope="module")
def largest() -> list[dict]:
    """The runs of lab 7 with its largest model."""
    return [run for run in reference.read_all(CLUSTER, "lab07_vit") if run["config"]["width"] == 256]


def test_one_node_is_one_baseline_whatever_its_link(largest):
    rows = over_links.steps(largest)
    alone = rows[(rows["N"] == 1) & (rows["B"] == 32)]["seconds"]
    assert len(alone) >= 8
    table = over_links.second_node(rows).query("B == 32").set_index("link")
    both = rows[(rows["N"] == 2) & (rows["B"] == 32)].groupby("link")["seconds"].median()
    assert table.index.tolist() == [5e7, 2e8, 1e9, 1e10]
    assert table["speedup"].to_dict() == pytest.approx((alone.median() / both).to_dict())
    assert (table["speedup_low"] < table["speedup"]).all()
    assert table["speedup"].is_monotonic_increasing


def test_the_transports_are_compared_on_each_link(allreduces):
    table = over_links.transports_compared(allreduces, 4 * 2**20)
    assert list(table.index) == ["50mbit", "100mbit", "200mbit", "500mbit", "1gbit", "2gbit", "5gbit", "10gbit"]
    assert table["MPI"].is_monotonic_decreasing
    assert table["Gloo / MPI"][:"1gbit"].between(0.9, 1.2).all()


def test_runs_of_several_model_sizes_are_not_one_baseline():
    with pytest.raises(LabError, match="one model size"):
        over_links.steps(reference.read_all(CLUSTER, "lab07_vit"))


def test_predictions_are_lines_and_measurements_are_points(largest):
    table = over_links.second_node(over_links.steps(largest)).query("B == 32")
    figure = over_links.second_node_figure(lambda batch, links: 0 * links + 1.5, [32, 128], table)
    (axes,) = figure.axes
    assert labels(axes)[:2] == ["B = 32, predicted", "B = 128, predicted"]
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert [len(line.get_xdata()) for line in points] == [4]
    (axes,) = over_links.second_node_figure(lambda batch, links: 0 * links + 1.5, [32]).axes
    assert labels(axes) == ["B = 32, predicted"]


def test_a_summary_says_how_well_the_steps_were_predicted(steps):
    first, *rest = over_links.summary(steps).splitlines()
    assert first == f"{len(over_links.cells(steps))} steps predicted before they were measured:"
    assert [line.partition(":")[0] for line in rest] == [
        "as predicted", "with the computation timed in turns with the step"]


def test_runs_without_such_a_table_are_refused_with_the_command(allreduces):
    with pytest.raises(LabError, match="labs cluster sweep LAB --preset cluster"):
        over_links.cells(allreduces)


@pytest.fixture(scope="module")
def trained() -> list[dict]:
    """The runs of lab 11's sweeps "weak" and "strong" over links."""
    return layouts.trained(reference.read_all(CLUSTER, "lab11_multinode"))


def test_both_kinds_of_scaling_have_a_line_for_each_bandwidth(trained):
    for axes in over_links.scaling_figure(trained).axes:
        lines = [line for line in axes.lines if line.get_marker() == "o"]
        assert [set(line.get_xdata()) for line in lines] == [{1, 2, 4, 8}] * 3


def test_equal_global_batches_reach_about_equal_accuracy_on_any_number_of_nodes(trained):
    rows = over_links.accuracy(trained)
    strong = rows[rows["global_batch_size"] == 32]
    assert set(strong["nodes"]) == {1, 2, 4, 8}
    assert strong["test_accuracy"].max() - strong["test_accuracy"].min() < 0.05
    assert list(rows["link"].unique()) == ["100mbit", "1gbit", "10gbit"]
