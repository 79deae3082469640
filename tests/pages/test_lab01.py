"""Page 1: the fit of a step's cost, its intervals, and the lines that it refuses."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from labs.pages import lab01, step_cost
from labs.run.errors import LabError

BATCHES = np.array([8, 32, 128, 256, 512, 1024])


def test_the_line_is_the_one_by_hand():
    """np.polyfit multiplies an error by its weight before it squares it."""
    t = (0.006 + 0.0004 * BATCHES) * (1, 1.1, 0.95, 1.02, 0.9, 1.05)
    cost = step_cost.fit(BATCHES, t)
    (c, a), covariance = np.polyfit(BATCHES, t, 1, w=1 / t, cov=True)
    assert (cost.fixed.value, cost.per_image.value) == pytest.approx((a, c))
    half = 2.776 * np.sqrt(np.diag(covariance))  # Student's quantile for six points and two parameters.
    assert cost.per_image.high - c == pytest.approx(half[0], rel=1e-3)
    assert a - cost.fixed.low == pytest.approx(half[1], rel=1e-3)
    assert cost.seconds(64) == pytest.approx(a + 64 * c)
    assert math.isnan(step_cost.fit([8, 32], [0.008, 0.014]).fixed.low), "two points have a line and no interval"


def test_a_negative_fixed_cost_is_refused_with_what_to_do():
    """1,438 images in batches of 1,024 are two steps; 1024 / images_per_sec adds the padding to the time of one."""
    batches = np.array([32, 1024])
    images_per_sec = 1438 / (np.ceil(1438 / batches) * (0.0005 + 0.0004 * batches))
    with pytest.raises(LabError, match=r"a < 0 .* train_seconds / steps .* batch size / images_per_sec is not"):
        step_cost.fit(batches, batches / images_per_sec)
    with pytest.raises(LabError, match=r"the line has c < 0"):
        step_cost.fit([8, 32, 128], [0.03, 0.02, 0.01])
    cost = step_cost.fit([32, 256, 512], [0.028, 0.246, 0.44])  # Noise: the interval of a contains zero.
    assert cost.fixed.low < cost.fixed.value < 0 < cost.fixed.high


@pytest.mark.parametrize(("batches", "seconds", "why"), [
    ([32, 32], [0.01, 0.02], "a single batch size"), ([8, 32], [0.01, 0.0], "positive time"),
])
def test_what_has_no_line_is_refused(batches, seconds, why):
    with pytest.raises(LabError, match=why):
        step_cost.fit(batches, seconds)


@pytest.mark.filterwarnings("error")
def test_the_steps_of_a_disturbed_run_are_drawn_without_the_limit_that_has_no_place():
    sizes, seconds = [32, 64, 128, 256, 512, 1024], [0.001, 0.0021, 0.0045, 0.009, 0.02, 0.05]
    cost = step_cost.fit(sizes, seconds)
    assert cost.fixed.value < 0
    figure = lab01.step_times(pd.DataFrame({"batch_size": sizes, "seconds": seconds}), cost)
    figure.canvas.draw()
    assert len(figure.axes[0].lines) == 2
