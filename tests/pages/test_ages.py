"""Lab 8's figures show what the records have."""

from __future__ import annotations

import io

import pandas as pd
import pytest

from labs import datasets
from labs.datasets.synthetic import make_synthetic
from labs.pages import ages
from labs.results import reference
from labs.run.paths import ROOT
from tests.exercises.planted import made


def drawn(figure):
    figure.savefig(io.BytesIO(), format="png")
    return figure


def test_the_faces_are_in_the_order_of_their_ages():
    splits = datasets.from_faces(make_synthetic("imdb_wiki"), 48, 0.2, 0.0, 1)
    titles = [float(axes.get_title()) for axes in drawn(ages.faces(splits, 6)).axes]
    assert titles == sorted(titles)
    assert len(titles) == 6


def test_the_errors_are_those_of_the_records():
    runs = [made("lab08", model=model, metrics={"test_mae": 7.0}) for model in ("vgg16", "small")]
    for run in runs:
        run["history"][-1]["mae"] = 4.0
    axes, = drawn(ages.errors(runs, 17.5)).axes
    assert [list(line.get_xdata()) for line in axes.lines] == [[4, 4], [7, 7], [17.5, 17.5]]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["VGG16", "small network"]


def test_a_layout_has_a_dot_per_turn_and_their_mean():
    axes, = drawn(ages.layouts(pd.DataFrame({"1 x 2": [10.0, 12.0, 14.0], "2 x 1": [20.0, 21.0, 22.0]}))).axes
    assert [list(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 3] == [[10, 12, 14], [20, 21, 22]]


def test_the_networks_on_a_gpu_are_beside_report_a():
    cores = pd.DataFrame({1: [20.0, 21.0, 22.0], 4: [40.0, 41.0, 42.0]})
    report = pd.read_csv(ROOT / "data/reference/lab08_throughput.csv")
    _, right = drawn(ages.batches(cores, reference.read_all("h200", "lab08_throughput"), report)).axes
    last = {line.get_label(): line.get_ydata()[-1] for line in right.lines}
    assert last["VGG16"] == pytest.approx(1446, abs=1)
    assert last["ResNet50"] == pytest.approx(798, abs=1)
    assert last["report A, VGG16"] == 63.88


def test_the_networks_are_compared_cut_and_uncut():
    report = pd.read_csv(ROOT / "data/reference/lab08_throughput.csv")
    table = ages.networks(reference.read_all("two-cores", "lab08_throughput"), report)
    assert list(table.index) == ["ResNet50", "InceptionV3", "VGG16"]
    assert table.loc["ResNet50"].to_dict() == {"1 x 2": "46", "2 x 1": "37", "2 x 1 over 1 x 2": "0.81 (0.64 to 1.03)",
                                               "full size": "5.41", "report A, 28 cores": "23.0"}
