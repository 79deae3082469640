"""The pages' models and algorithms, against simulations, hand computations and limits."""

import math

import numpy as np
import pytest

from labs.pages import at_scale, lab05, lab10, laws
from labs.run.errors import LabError

STEPS = 0.02 + np.random.default_rng(0).gamma(2, 0.001, 400)
BATCHES = np.array([8, 32, 128, 256, 512, 1024])


def test_the_cost_of_a_step_is_the_weighted_line():
    """np.polyfit multiplies an error by its weight before it squares it."""
    t = (0.006 + 0.0004 * BATCHES) * (1, 1.1, 0.95, 1.02, 0.9, 1.05)
    cost = laws.fit_step_cost(BATCHES, t)
    (c, a), covariance = np.polyfit(BATCHES, t, 1, w=1 / t, cov=True)
    assert (cost.fixed.value, cost.per_image.value) == pytest.approx((a, c))
    half = 2.776 * np.sqrt(np.diag(covariance))  # Student's quantile for six points and two parameters.
    assert (cost.per_image.high - c, a - cost.fixed.low) == pytest.approx(tuple(half), rel=1e-3)
    assert math.isnan(laws.fit_step_cost([8, 32], [0.008, 0.014]).fixed.low), "two points have a line and no interval"
    for sizes, seconds in (([8, 32, 128], [0.03, 0.02, 0.01]), ([32, 1024], [0.010, 0.84])):
        with pytest.raises(LabError, match="the line is impossible"):
            laws.fit_step_cost(sizes, seconds)


def test_the_step_of_median_length_has_the_bars_of_all_ranks():
    steps = [[[("4", 5.0, 5.02), ("all-reduce", 5.02, 5.03 + late), ("3", 5.02, 5.04)] for late in lates]
             for lates in ((0.5, 0.03, 0.01), (0.0, 0.0, 0.0))]  # Three steps of two ranks, in seconds.
    first, second = lab05.median_step(steps)
    assert first[1][1:] == pytest.approx((20, 60))
    (axes,) = lab05.step_figure({"overlap": [first, second]}).axes
    assert [bar.get_width() for bar in axes.patches[:3]] == pytest.approx([20, 40, 20])


def test_the_accuracy_of_the_chosen_one_rises_on_the_validation_alone():
    rng = np.random.default_rng(1)
    validation, test = rng.binomial(155, 0.65, (2, 500, 100)) / 155
    (axes,) = lab10.best_of_figure(validation, test, 0.65).axes
    on_validation, on_test, truth = (np.asarray(line.get_ydata()) for line in axes.lines)
    assert on_validation[[0, -1]] == pytest.approx([0.65, 0.744], abs=0.01)  # 2.51 standard errors of 0.038.
    assert np.abs(on_test - truth[0]).max() < 0.01


def test_young_and_daly_agree_where_failures_are_rare():
    intervals = np.geomspace(600, 20_000, 2000)
    simple, full = at_scale.first_order(intervals, 6, 1e6, 60), at_scale.time_lost(intervals, 6, 60, 1e6)
    assert simple == pytest.approx(full, rel=0.02)
    assert intervals[simple.argmin()] == pytest.approx((2 * 6 * 1e6) ** 0.5, rel=0.01)


@pytest.mark.parametrize(("every", "save", "restart", "mtbf"), [(60, 1, 5, 3600), (1000, 10, 500, 600)])
def test_the_time_lost_agrees_with_a_simulation(every, save, restart, mtbf):
    between = np.random.default_rng(1).exponential(mtbf, 100_000)
    trained = every * (np.maximum(between - restart, 0) // (every + save))
    lost = 1 - trained.sum() / between.sum()
    assert at_scale.time_lost(every, save, restart, mtbf) == pytest.approx(lost, rel=0.02, abs=2e-4)


@pytest.mark.parametrize("n", [2, 64])
def test_a_step_is_the_slowest_worker_and_then_the_all_reduce(n):
    """A ring, simulated message by message, with workers that begin when their own step is done."""
    nbytes, latency, bandwidth = 4.8e6, 25e-6, 1.25e9
    ends = []
    for times in np.random.default_rng(n).choice(STEPS, (100, n)):
        for _ in range(2 * (n - 1)):
            times = np.maximum(times, np.roll(times, 1)) + latency + nbytes / n / bandwidth
        ends.append(times.max())
    step = at_scale.predict(n, STEPS, nbytes, algorithm="ring", overlap=0, latency=latency, bandwidth=bandwidth)
    assert step.step_seconds == pytest.approx(np.mean(ends), abs=4 * np.std(ends) / math.sqrt(len(ends)))
