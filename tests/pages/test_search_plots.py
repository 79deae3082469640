"""Figures of lab 9: each run is on the line of its rule."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from labs.pages import drawings, plots, search_plots


@pytest.fixture
def frame():
    """Two seeds of 1, 2 and 4 workers with each rule, of 4 workers with four times the epochs, and of other rates."""
    columns = ("size", "scaling", "epochs", "base_lr", "optimizer")
    rows = [dict(zip(columns, values, strict=True)) | {"seed": seed} for seed in (1, 2) for values in (
                (1, "none", 8, 0.004, "adam"), (2, "none", 8, 0.004, "adam"), (2, "linear", 8, 0.004, "adam"),
                (4, "none", 8, 0.004, "adam"), (4, "linear", 8, 0.004, "adam"), (4, "none", 32, 0.004, "adam"),
                (1, "none", 8, 0.1, "adam"), (1, "none", 8, 0.1, "sgd"), (1, "none", 8, 0.01, "sgd"))]
    rng = np.random.default_rng(1)
    measured = {name: rng.random(len(rows)) for name in ("test_accuracy", "test_accuracy_recomputed", "test_loss",
                                                         "test_loss_recomputed")}
    return pd.DataFrame(rows).assign(batch_size=32, width=8, **measured)


def lines(axes) -> dict[str, list[float]]:
    return {container.get_label(): list(container.lines[0].get_xdata()) for container in axes.containers}


def test_rules_has_a_line_for_each_rule_that_ran(frame):
    scaled = search_plots.with_rules(frame)
    assert len(scaled) == 12, "other rates and optimizers are left out"
    assert set(scaled.loc[scaled["epochs"] == 32, "rule"]) == {"updates"}
    accuracy, loss = search_plots.rules(scaled).axes
    assert lines(accuracy)["linear: running statistics"] == pytest.approx([1, 2, 4], abs=0.1)
    assert lines(accuracy)["held, N times the epochs: recomputed statistics"] == pytest.approx([1, 4], abs=0.1)
    assert "square root: running statistics" not in lines(accuracy)
    assert loss.get_yscale() == "log"


def test_rates_has_a_line_for_each_optimizer(frame):
    (axes,) = search_plots.rates(frame[frame["size"] == 1], marked=(0.0005, 0.1)).axes
    assert lines(axes) == {"adam": [0.004, 0.1], "sgd": [0.01, 0.1]}


def test_a_pruned_trial_ends_in_a_cross():
    (axes,) = search_plots.trials({0: [0.4, 0.5, 0.6], 1: [0.2, 0.3]}, best=0, epochs=3).axes
    labels = [line.get_label() for line in axes.lines if line.get_marker() == "o"]
    assert labels == ["trial 0, chosen", "trial 1, pruned"]
    assert [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "x"] == [[2]]


def test_drawings_are_made():
    for figure in (drawings.three_judges(272, 88, 1020), drawings.running_mean((24, 72)),
                   plots.pictures([np.zeros((4, 4, 3), np.uint8)] * 2, ["one", "other"], 1.9)):
        figure.savefig(io.BytesIO(), format="png")
    texts = [text.get_text() for text in drawings.running_mean((24, 72)).axes[0].texts]
    assert "= 8 %" in texts[0]
    assert "= 0.05 %" in texts[1]
