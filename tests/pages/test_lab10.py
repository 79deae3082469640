"""Page 10: the choice among networks, and the costs of a validation split."""

from __future__ import annotations

import numpy as np
import pytest

from labs.pages import lab10
from tests.exercises.planted import made


def test_the_accuracy_of_the_chosen_one_rises_on_the_validation_alone():
    rng = np.random.default_rng(1)
    validation, test = rng.binomial(155, 0.65, (2, 500, 100)) / 155
    (axes,) = lab10.best_of_figure(validation, test, 0.65).axes
    on_validation, on_test, truth = (np.asarray(line.get_ydata()) for line in axes.lines)
    assert on_validation[[0, -1]] == pytest.approx([0.65, 0.744], abs=0.01)  # 2.51 standard errors of 0.038.
    assert np.abs(on_test - truth[0]).max() < 0.01


def test_the_costs_of_an_epoch_leave_out_the_first():
    run = made("lab10", epochs=3, scores=(0.3, 0.4, 0.5)) | {"data": {"train": {"images": 60},
                                                                      "validation": {"images": 15}}}
    without = made("lab10", epochs=3) | {"data": {"train": {"images": 75}}}
    run["history"][0] |= {"train_seconds": 99.0, "val_seconds": 99.0}
    costs = lab10.epoch_costs([run, without])
    assert costs["val_seconds"].tolist() == [1.5, 0]
    assert costs["val_images"].tolist() == [15, 0]
    assert costs["train_seconds"].tolist() == pytest.approx([10, 10])
