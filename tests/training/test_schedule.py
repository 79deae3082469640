"""Learning rates: exact where they are known."""

import pytest

from labs.training.schedule import Warmup, scaled_lr


def test_the_rules():
    assert [scaled_lr(0.001, 16, rule) for rule in ("none", "linear", "sqrt")] == pytest.approx([0.001, 0.016, 0.004])
    assert {scaled_lr(0.001, 1, rule) for rule in ("none", "linear", "sqrt")} == {0.001}


def test_warmup_climbs_in_a_straight_line_and_falls_at_each_milestone():
    for schedule, rates in (
            (Warmup(0.1, 1.6, 30), {0: 0.1, 15: 0.85, 29: 1.55, 30: 1.6, 1000: 1.6}),
            (Warmup(0.1, 1.6), {0: 1.6, 100: 1.6}),
            (Warmup(0.1, 1.6, 10, milestones=(20, 40)), {19: 1.6, 20: 0.16, 39: 0.16, 40: 0.016})):
        assert {step: float(schedule(step)) for step in rates} == pytest.approx(rates)
