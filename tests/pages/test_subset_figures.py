"""Figures of lab 10: the choice among networks, and the costs of a validation split."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from labs.pages import drawings, subset_figures
from labs.run.errors import LabError
from tests.exercises.planted import made


def test_the_best_on_the_validation_is_marked():
    (axes,) = subset_figures.chosen([0.1, 0.3, 0.2], [0.5, 0.05, 0.2], chance=0.1).axes
    (marked,) = [line for line in axes.lines if line.get_marker() == "s"]
    assert marked.get_xydata().tolist() == [[0.3, 0.05]]
    assert marked.get_label() == "chosen: validation 0.300,\ntest 0.050"


def test_the_accuracy_of_the_chosen_one_rises_on_the_validation_alone():
    rng = np.random.default_rng(1)
    validation, test = rng.binomial(155, 0.65, (2, 500, 100)) / 155
    (axes,) = subset_figures.best_of(validation, test, 0.65).axes
    on_validation, on_test, truth = (np.asarray(line.get_ydata()) for line in axes.lines)
    assert on_validation[[0, -1]] == pytest.approx([0.65, 0.744], abs=0.01)  # 2.51 standard errors of 0.038.
    assert np.abs(on_test - truth[0]).max() < 0.01


def test_the_costs_of_an_epoch_leave_out_the_first():
    run = made("lab10", epochs=3, scores=(0.3, 0.4, 0.5)) | {"data": {"train": {"images": 60},
                                                                      "validation": {"images": 15}}}
    without = made("lab10", epochs=3) | {"data": {"train": {"images": 75}}}
    run["history"][0] |= {"train_seconds": 99.0, "val_seconds": 99.0}
    costs = subset_figures.epoch_costs([run, without])
    assert costs["val_seconds"].tolist() == [1.5, 0]
    assert costs["val_images"].tolist() == [15, 0]
    assert costs["train_seconds"].tolist() == pytest.approx([10, 10])


def test_each_run_is_a_dot_and_the_line_joins_the_means():
    frame = pd.DataFrame({"validation_split": [0, 0, 0.4], "test_accuracy": [0.5, 0.7, 0.4],
                          "train_seconds": [1.0, 1, 0.6], "val_seconds": [0.0, 0, 0.2]})
    accuracy, _ = subset_figures.split_costs(frame).axes
    dots, line = accuracy.lines
    assert dots.get_xydata()[:, 1].tolist() == [0.5, 0.7, 0.4]
    assert line.get_xydata()[:, 1] == pytest.approx([0.6, 0.4])


def test_all_images_are_in_a_shard():
    figure = drawings.subsets_and_shards(614, 155, 196, 2)
    numbers = [text.get_text() for text in figure.axes[0].texts]
    assert [number for number in numbers if number.isdigit()] == ["307", "307", "78", "77", "98", "98"]
    with pytest.raises(LabError, match="1 to 4 ranks"):
        drawings.subsets_and_shards(614, 155, 196, 5)
