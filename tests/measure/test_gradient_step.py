"""A timed step computes the gradients of all weights, and exchanges them if it is told how."""

from __future__ import annotations

import pytest

from labs import models
from labs.measure.gradient_step import GradientStep


@pytest.mark.slow
def test_a_step_exchanges_its_gradients():
    seen = []

    def exchange(gradients):
        seen.append(len(gradients))
        return gradients

    model = models.age_model("small", 48)
    assert GradientStep(model, 2).images_per_sec(2) > 0
    assert not seen
    assert GradientStep(model, 2, exchange).images_per_sec(2) > 0
    assert seen == [12], "five convolutions and a dense layer, each with weights and bias"
