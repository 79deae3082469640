"""Page 8: its tables of networks, and what it says of scaling over nodes, are those of the reference runs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from labs import datasets
from labs.datasets.synthetic import make_synthetic
from labs.pages import lab08
from labs.results import reference
from labs.run.paths import ROOT

REPORT = pd.read_csv(ROOT / "data/reference/lab08_throughput.csv")


@pytest.fixture(scope="module")
def runs():
    return reference.read_all("laptop-cluster", "lab11_multinode")


def test_the_faces_are_in_the_order_of_their_ages():
    splits = datasets.from_faces(make_synthetic("imdb_wiki"), 48, 0.2, 0.0, 1)
    titles = [float(axes.get_title()) for axes in lab08.face_figure(splits, 6).axes]
    assert titles == sorted(titles)
    assert len(titles) == 6


def test_the_networks_on_a_gpu_are_beside_report_a():
    cores = pd.DataFrame({1: [20.0, 21.0, 22.0], 4: [40.0, 41.0, 42.0]})
    _, right = lab08.batch_figure(cores, reference.read_all("h200", "lab08_throughput"), REPORT).axes
    last = {line.get_label(): line.get_ydata()[-1] for line in right.lines}
    assert last["VGG16"] == pytest.approx(1446, abs=1)
    assert last["report A, VGG16"] == 63.88


def test_the_networks_are_compared_cut_and_uncut():
    table = lab08.layout_table(reference.read_all("two-cores", "lab08_throughput"), REPORT)
    assert list(table.index) == ["ResNet50", "InceptionV3", "VGG16"]
    assert table.loc["ResNet50"].to_dict() == {"1 x 2": "46", "2 x 1": "37", "2 x 1 over 1 x 2": "0.81 (0.64 to 1.03)",
                                               "full size": "5.41", "report A, 28 cores": "23.0"}


def test_the_shares_that_the_laws_need(runs):
    strong, weak = (lab08.needed_shares(runs, kind).query("link == '100mbit' and nodes > 1")
                    for kind in ("strong", "weak"))
    assert strong["by_ring"].iloc[0] == pytest.approx(21.6, abs=0.05)
    assert strong["share"].tolist() == pytest.approx([24.2, 34.1, 39.8], abs=0.05)
    lost = 1 - weak["speedup"] / weak["nodes"]
    assert np.all(np.diff(weak["share"]) < 0), "Gustafson's share falls while the lost part grows"
    assert np.all(np.diff(lost) > 0)
    assert weak["share"].tolist() == pytest.approx((lost * weak["nodes"] / (weak["nodes"] - 1)).tolist())


@pytest.mark.parametrize(("kind", "off"), [("strong", 0.31), ("weak", 4.77)])
def test_lab_5s_model_is_within_16_percent_where_no_law_is_within_30(runs, kind, off):
    table = lab08.fit_table(runs, reference.read_all("laptop-cluster", "lab05_allreduce"), kind)
    assert table.index.tolist() == [2, 4, 8]
    assert table["lab 5, residual"].abs().max() < 0.16
    assert table["law, residual"].abs().max() == pytest.approx(off, abs=0.01)
