"""Solutions, where the clone has them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable

from labs import exercises
from labs.run import catalogue


def solution(question: str) -> Callable:
    """Return the function that answers a question from its runs."""
    lab, _, number = question.partition(".")
    return getattr(importlib.import_module(f"solutions.{catalogue.resolve(lab)}"), number)


def solved(*questions: str, store=None) -> None:
    """Answer questions from a store that real runs have filled, and have them judged."""
    if importlib.util.find_spec("solutions"):
        for question in questions:
            exercises.check(question, solution(question)(exercises.runs(question, store)), store)
