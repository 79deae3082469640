"""What the notebooks say about several seeds follows from the figures."""

from __future__ import annotations

import pandas as pd
import pytest
from scipy import stats

from labs.course import seeds
from labs.results import statistics


def test_settings_are_compared_by_the_spread_of_their_seeds():
    one, other = [0.625, 0.625, 0.675], [0.517, 0.417, 0.433]
    known = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert statistics.difference(one, other)[1:] == pytest.approx((known.low, known.high))
    assert seeds.compared(one, other) == ("means 0.642 and 0.456 differ by +0.186, 95 % interval +0.075 to +0.297: "
                                          "more than the noise of the seeds")
    assert seeds.compared(other, one).endswith("-0.297 to -0.075: more than the noise of the seeds")
    assert seeds.compared([0.5, 0.7], [0.4, 0.7]).endswith(": the seeds cannot tell them apart")


def test_one_seed_says_nothing_about_chance():
    assert seeds.compared([0.9], [0.1, 0.2]).endswith("one seed has no spread, so it may be noise")


def test_equal_values_have_an_interval_of_no_width():
    assert statistics.difference([2, 2], [1, 1]) == (1, 1, 1)


def test_the_spread_of_a_setting_is_its_mean_and_students_interval():
    frame = pd.DataFrame({"size": [1, 1, 1, 2], "share": [0.1, 0.2, 0.3, 0.5]})
    table = seeds.spread(frame, ["size"], "share")
    half = 4.3027 * 0.1 / 3**0.5  # Student's quantile for two degrees of freedom.
    assert table.loc[1].tolist() == pytest.approx([0.2, 0.2 - half, 0.2 + half], abs=1e-4)
    assert table["share"][2] == 0.5
    assert table.loc[2].isna().tolist() == [False, True, True]
