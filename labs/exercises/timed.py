"""Graders of measured times, which say beside their mark that a run was disturbed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from labs.results import noise
from labs.results.records import Record

Grader = Callable[[Any, list[Record]], str]


def timed(grade: Grader) -> Grader:
    """Return a grader that adds the warning of lint to its mark, right or wrong, if the times allow no conclusion."""
    @functools.wraps(grade)
    def with_warning(answer: Any, runs: list[Record]) -> str:
        warning = noise.warning(*runs)
        try:
            return " ".join(filter(None, [f"{grade(answer, runs)}{'.' * bool(warning)}", warning]))
        except AssertionError as wrong:
            raise AssertionError(" ".join(filter(None, [str(wrong), warning]))) from None

    return with_warning
