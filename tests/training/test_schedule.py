"""Learning rates: exact where they are known."""

import pytest

from labs.training.schedule import Warmup, scaled_lr


@pytest.mark.parametrize(("rule", "factor"), [("none", 1), ("linear", 16), ("sqrt", 4)])
def test_the_rules(rule, factor):
    assert scaled_lr(0.001, 16, rule) == pytest.approx(0.001 * factor)
    assert scaled_lr(0.001, 1, rule) == 0.001


def lrs(schedule, *steps):
    return [float(schedule(step)) for step in steps]


def test_warmup_climbs_in_a_straight_line_and_stays():
    schedule = Warmup(0.1, 1.6, warmup_steps=30)
    assert lrs(schedule, 0, 15, 29, 30, 31, 1000) == pytest.approx([0.1, 0.85, 1.55, 1.6, 1.6, 1.6])
    assert lrs(Warmup(0.1, 1.6), 0, 1, 100) == pytest.approx([1.6, 1.6, 1.6])


def test_a_milestone_is_the_first_step_of_the_lower_rate():
    schedule = Warmup(0.1, 1.6, 10, milestones=(20, 40))
    assert lrs(schedule, 19, 20, 39, 40) == pytest.approx([1.6, 0.16, 0.16, 0.016])
