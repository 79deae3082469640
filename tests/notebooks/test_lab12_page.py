"""Lab 12's committed page: what a dead worker cost, as the text says."""

from __future__ import annotations

import re

from tests.notebooks.committed import Page

PAGE = Page("lab12_elastic")


def test_what_is_lost_agrees_with_what_is_said():
    rows = {what: (float(steps), float(seconds)) for what, steps, seconds in re.findall(
        r"^([a-z]+[:,] [a-z ]*[a-z]) +(\d+\.\d) +(\d+\.\d)$", PAGE.tables("steps_lost")[-1], re.M)}
    assert set(rows) == {"killed, resumed", "preempted, resumed", "elastic: worker lost", "elastic: worker joined"}
    assert rows["preempted, resumed"][0] == rows["elastic: worker joined"][0] == 0
    assert rows["elastic: worker lost"][0] > 0
    assert rows["elastic: worker lost"][1] < rows["elastic: worker joined"][1]


def test_runs_that_were_broken_off_at_different_steps_reach_one_result():
    resumed = [line.split()[4:6] for output in PAGE.outputs for line in output.splitlines()
               if re.match(r" +2 +128 +\d", line)][:2]
    assert len(resumed) == 2
    assert resumed[0] == resumed[1], "test accuracy and test loss"
