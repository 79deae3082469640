"""Scaling over nodes: what lab 8's page says of the reference runs is what they have."""

from __future__ import annotations

import io

import numpy as np
import pytest

from labs.pages import node_scaling
from labs.results import reference


@pytest.fixture(scope="module")
def runs():
    return reference.read_all("laptop-cluster", "lab11_multinode")


def test_the_share_that_amdahls_law_needs_grows_with_the_nodes(runs):
    rows = node_scaling.points(runs, "strong").query("link == '100mbit'")
    assert rows["by_ring"].iloc[0] == pytest.approx(21.6, abs=0.05)
    assert rows["share"].dropna().tolist() == pytest.approx([24.2, 34.1, 39.8], abs=0.05)


def test_gustafsons_share_falls_while_the_lost_part_grows(runs):
    rows = node_scaling.points(runs, "weak").query("link == '100mbit' and nodes > 1")
    lost = 1 - rows["speedup"] / rows["nodes"]
    assert np.all(np.diff(rows["share"]) < 0)
    assert np.all(np.diff(lost) > 0)
    assert rows["share"].tolist() == pytest.approx((lost * rows["nodes"] / (rows["nodes"] - 1)).tolist())


def test_lab_5s_model_is_within_16_percent_where_no_law_is_within_30(runs):
    exchanges = reference.read_all("laptop-cluster", "lab05_allreduce")
    fits = {kind: node_scaling.fits(runs, exchanges, kind) for kind in ("strong", "weak")}
    for kind, off in (("strong", 0.31), ("weak", 4.77)):
        assert fits[kind]["lab 5, residual"].abs().max() < 0.16
        assert fits[kind]["law, residual"].abs().max() == pytest.approx(off, abs=0.01)
        assert fits[kind].index.tolist() == [2, 4, 8]


def test_the_figure_of_the_shares_is_drawn(runs):
    figure = node_scaling.share_figure(runs)
    figure.savefig(io.BytesIO(), format="png")
    assert [axes.get_xlabel() for axes in figure.axes] == ["nodes", "nodes"]
