"""What is timed is what it is called."""

from __future__ import annotations


def test_the_calls_that_are_timed_do_what_they_are_called(workers):
    output = workers("timed_calls.py", 2).stdout
    assert "rank 0: ['quick', 'slow'], all well" in output
    assert "rank 1: ['quick', 'slow'], all well" in output
