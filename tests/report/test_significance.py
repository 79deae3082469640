"""What the notebooks say about noise follows from the figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from labs.report import scaling, significance


def test_two_accuracies_are_compared_by_the_images_behind_them():
    """The two pairs that the pages once judged by eye, and wrongly."""
    caltech = significance.compare_accuracies(144 / 196, 119 / 196, 196)
    assert caltech.standard_errors == pytest.approx(2.69, abs=0.01)
    assert not caltech.noise
    assert str(caltech) == ("0.735 against 0.607 on 196 images: 2.7 standard errors of the difference, "
                            "more than the choice of test images explains")
    fruits = significance.compare_accuracies(75 / 120, 68 / 120, 120)
    assert fruits.standard_errors == pytest.approx(0.92, abs=0.01)
    assert fruits.noise
    assert str(fruits).endswith("0.9 standard errors of the difference, within noise (at most 2)")


@pytest.mark.parametrize(("first", "second", "noise"), [(1.0, 1.0, True), (0.0, 0.0, True), (1.0, 0.0, False)])
def test_perfect_scores_are_compared_too(first, second, noise):
    assert significance.compare_accuracies(first, second, 50).noise is noise


def test_a_true_null_hypothesis_is_called_noise_in_95_of_100_cases():
    right = np.random.default_rng(1).binomial(200, 0.7, (4000, 2)) / 200
    noise = np.mean([significance.compare_accuracies(*pair, 200).noise for pair in right])
    assert 0.94 < noise < 0.97


def test_seeds_are_compared_by_their_spread():
    first, second = [0.625, 0.625, 0.675], [0.517, 0.417, 0.433]
    told = significance.compare_seeds(first, second)
    known = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert (told.low, told.high) == pytest.approx((known.low, known.high))
    assert not told.noise
    assert "0.642 against 0.456, means of 3 seeds each: difference +0.186" in str(told)
    assert "does not contain 0" in str(told)
    assert significance.compare_seeds(second, first).high == pytest.approx(-told.low)
    wide = significance.compare_seeds([0.5, 0.7], [0.4, 0.7])
    assert wide.noise
    assert "which contains 0: these seeds cannot tell them apart" in str(wide)


def test_one_seed_says_nothing_about_chance():
    told = significance.compare_seeds([0.9], [0.1, 0.2])
    assert told.noise
    assert math.isnan(told.low)
    assert "one seed has no spread" in str(told)


def test_equal_values_leave_no_interval_to_speak_of():
    assert scaling.difference([2, 2], [1, 1]) == (1, 1, 1)
