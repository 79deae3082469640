"""A mark for a measured time has lint's finding about the record beside it."""

from __future__ import annotations

import pytest

from labs import exercises
from labs.lint import checker
from tests.exercises import planted


def test_a_grader_says_what_lint_says_of_a_disturbed_record(tmp_path, capsys):
    one, two = planted.made("lab02", epochs=4), planted.made("lab02", 4, 350, epochs=4)
    exercises.check("lab02.q1", 3.5, planted.write(tmp_path / "quiet", one, two))
    two["history"][2]["train_seconds"] *= 1.6
    assert "Disturbed" not in capsys.readouterr().out
    root = planted.write(tmp_path / "busy", one, two)
    _, (finding,) = next(checker.verdicts([root]))
    clause = finding.text.partition(": ")[2]
    assert "the slowest of 3 epochs took 1.6 times as long as the fastest" in clause
    exercises.check("lab02.q1", 3.5, root)
    right = capsys.readouterr().out
    assert right.startswith("lab02.q1: right: throughput(4) / throughput(1)")
    assert clause in right
    with pytest.raises(AssertionError, match=r"is not right: .*Disturbed: .*Measure again"):
        exercises.check("lab02.q1", 4, root)
    exercises.check("lab02.q3", 8, root)
    assert "Disturbed" not in capsys.readouterr().out, "a number of steps is what it is on a busy machine"
