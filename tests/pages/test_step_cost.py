"""The fit of a step's cost: its line, its intervals, and the lines that it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labs.pages import step_cost
from labs.run.errors import LabError

BATCHES = np.array([8, 32, 128, 256, 512, 1024])


def test_points_on_a_line_give_the_line():
    cost = step_cost.fit(BATCHES, 0.006 + 0.0004 * BATCHES)
    assert cost.fixed == pytest.approx((0.006, 0.006, 0.006))
    assert cost.per_image == pytest.approx((0.0004, 0.0004, 0.0004))
    assert cost.seconds(64) == pytest.approx(0.0316)
    assert cost.seconds(BATCHES) == pytest.approx(0.006 + 0.0004 * BATCHES)


def test_the_line_is_the_one_by_hand():
    """np.polyfit multiplies an error by its weight before it squares it."""
    t = (0.006 + 0.0004 * BATCHES) * (1, 1.1, 0.95, 1.02, 0.9, 1.05)
    cost = step_cost.fit(BATCHES, t)
    (c, a), covariance = np.polyfit(BATCHES, t, 1, w=1 / t, cov=True)
    assert (cost.fixed.value, cost.per_image.value) == pytest.approx((a, c))
    half = 2.776 * np.sqrt(np.diag(covariance))  # Student's quantile for six points and two parameters.
    assert cost.per_image.high - c == pytest.approx(half[0], rel=1e-3)
    assert a - cost.fixed.low == pytest.approx(half[1], rel=1e-3)


def test_intervals_contain_the_truth_as_often_as_they_say():
    """1,000 experiments with errors of 5 % of each time."""
    random, inside = np.random.default_rng(1), np.zeros(2)
    for _ in range(1000):
        t = (0.006 + 0.0004 * BATCHES) * (1 + 0.05 * random.standard_normal(len(BATCHES)))
        for number, (estimate, truth) in enumerate(zip(step_cost.fit(BATCHES, t), (0.006, 0.0004), strict=True)):
            inside[number] += estimate.low <= truth <= estimate.high
    assert inside / 1000 == pytest.approx([0.95, 0.95], abs=0.025)


def test_two_points_have_a_line_and_no_interval():
    cost = step_cost.fit([8, 32], [0.008, 0.014])
    assert cost.fixed.value == pytest.approx(0.006)
    assert math.isnan(cost.fixed.low)
    assert math.isnan(cost.per_image.high)


def test_a_negative_fixed_cost_is_refused_with_what_to_do():
    """1,438 images in batches of 1,024 are two steps; 1024 / images_per_sec adds the padding to the time of one."""
    batches = np.array([32, 1024])
    seconds = 0.0005 + 0.0004 * batches
    assert step_cost.fit(batches, seconds).fixed.value == pytest.approx(0.0005)
    images_per_sec = 1438 / (np.ceil(1438 / batches) * seconds)
    with pytest.raises(LabError, match=r"a < 0 .* train_seconds / steps .* batch size / images_per_sec is not"):
        step_cost.fit(batches, batches / images_per_sec)
    with pytest.raises(LabError, match=r"the line has c < 0"):
        step_cost.fit([8, 32, 128], [0.03, 0.02, 0.01])


def test_a_cost_that_noise_makes_negative_is_kept_with_its_interval():
    """Three runs on a busy machine: the interval of a reaches from far below zero to far above."""
    cost = step_cost.fit([32, 256, 512], [0.028, 0.246, 0.44])
    assert cost.fixed.low < cost.fixed.value < 0 < cost.fixed.high
    with pytest.raises(LabError, match=r"the line has a < 0"):
        step_cost.fit([32, 512], [0.026, 0.47])


@pytest.mark.parametrize(("batches", "seconds", "why"), [
    ([32, 32], [0.01, 0.02], "a single batch size"), ([8, 32], [0.01, 0.0], "positive time"),
])
def test_what_has_no_line_is_refused(batches, seconds, why):
    with pytest.raises(LabError, match=why):
        step_cost.fit(batches, seconds)
