"""Standard errors of accuracies against simulated ones, and the sentence that is made from them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labs.course import proportions


@pytest.mark.parametrize(("share", "images"), [(0.9902, 10_000), (0.7, 398), (0.1, 120)])
def test_errors_are_those_of_simulated_accuracies(share, images):
    rng = np.random.default_rng(1)
    one, other = rng.binomial(images, share, (2, 20_000)) / images
    assert proportions.standard_error(share, images) == pytest.approx(one.std(), rel=0.03)
    assert 1e-6 / proportions.difference(share, share - 1e-6, images) == pytest.approx((one - other).std(), rel=0.03)


def test_differences_of_the_reports():
    assert abs(proportions.difference(0.9902, 0.9905, 10_000)) < 0.3, "report M: noise"
    assert proportions.difference(0.735, 0.607, 196) == pytest.approx(2.7, abs=0.05)
    assert proportions.difference(0.625, 0.567, 120) == pytest.approx(0.9, abs=0.05)
    assert proportions.difference(0.8, 0.7, 100, 400) == pytest.approx(0.1 / math.hypot(0.04, math.sqrt(0.21 / 400)))


def test_accuracies_without_spread_have_no_error():
    assert proportions.difference(1.0, 1.0, 10) == 0
    assert proportions.difference(0.0, 1.0, 10) == -math.inf


def test_the_sentence_follows_the_difference():
    assert proportions.compared(0.735, 0.607, 196) == "0.735 and 0.607 differ by 2.7 standard errors: more than noise"
    assert proportions.compared(0.567, 0.625, 120) == "0.567 and 0.625 differ by 0.9 standard errors: within noise"


def test_a_paired_test_counts_the_images_on_which_two_models_differ():
    one, other = np.arange(100) < 70, (np.arange(100) >= 5) & (np.arange(100) < 60)
    both = proportions.paired(one, other)
    assert (both.only_one, both.only_other) == (15, 0)
    assert both.difference == pytest.approx(0.15)
    assert both.p == pytest.approx(2 / 2**15)
    assert str(both).endswith("15 images right only with the first, 0 only with the second, p < 0.0001: more than "
                              "noise")
    assert proportions.paired(one, one).p == 1
    assert str(proportions.paired(one[:4], [True, True, False, True])).endswith("p = 1: within noise")


def test_a_paired_difference_has_the_spread_of_simulated_ones():
    """Most errors are common to both models: the paired error is a fraction of that of two test sets."""
    rng, n = np.random.default_rng(1), 1000
    hard = rng.random((4000, n)) < 0.3
    one, other = (np.where(rng.random(hard.shape) < 0.1, rng.random(hard.shape) < 0.5, ~hard) for _ in range(2))
    spread = (one.mean(axis=1) - other.mean(axis=1)).std()
    both = proportions.paired(one[0], other[0])
    assert both.error == pytest.approx(spread, rel=0.1)
    assert both.error < 0.6 / abs(proportions.difference(0.7, 0.701, n)) * 0.001
    tests = [proportions.paired(*pair) for pair in zip(one[:500], other[:500], strict=True)]
    assert np.mean([test.p < 0.05 for test in tests]) < 0.07
