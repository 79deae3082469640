"""Predictions on the pages: judged against what was measured, each with its tolerance."""

from __future__ import annotations

import re

import numpy as np
import pytest

from labs.exercises import judged
from labs.run import catalogue
from tests.notebooks import committed

NO_NUMBER = "the answer must be a number, such as 0.67 or 18760, not"


@pytest.mark.parametrize(("guess", "right", "tolerance", "verdict"), [
    (None, 1.53, {"within": 0.1}, "None"),
    ({"a": None}, {"a": 1}, {}, "{'a': None}"),
    (1.5, np.float64(1.53), {"within": 0.1}, "1.5: right: 1.53 (within 10% is right)"),
    (0.5, 1.53, {"within": 0.1}, "0.5: not quite: 1.53 (within 10% is right)"),
    (1e-7, 0.0, {"margin": 1e-6}, "1e-07: right: 0.0 (within 1e-06 is right)"),
    (" Ring", "ring", {}, "' Ring': right"),
    ("tree", "ring", {}, "'tree': not quite: 'ring'"),
    (True, np.True_, {}, "True: right"),
    (1, True, {}, "1: not quite: True"),
    ((1, 1, 2), [1, 1, 2], {}, "(1, 1, 2): right"),
    ([[4, 6]], [[4, 6], [4, 6]], {}, "[[4, 6]]: not quite: [[4, 6], [4, 6]]"),
    ({"a": 2, "b": None}, {"a": 2, "b": 3}, {}, "{'a': 2, 'b': None}: incomplete: {'a': 2, 'b': 3}"),
    ({"a": 2, "c": 3}, {"a": 2, "b": 3}, {}, "{'a': 2, 'c': 3}: there is no 'c'; the keys are 'a', 'b'"),
    ({"aa": 5}, {"a": 5}, {}, "{'aa': 5}: there is no 'aa'; the keys are 'a'"),
    ([1, None], [1, 2], {}, "[1, None]: incomplete: [1, 2]"),
    (128, {32, 128}, {}, "128: right"),
    ("1.5", 1.5, {}, f"'1.5': {NO_NUMBER} '1.5'"),
    ("67%", 0.67, {}, f"'67%': {NO_NUMBER} '67%'"),
    ((18, 760), 18_760, {}, f"(18, 760): {NO_NUMBER} (18, 760)"),
    ({"steps": "18,760"}, {"steps": 18_760}, {}, f"{{'steps': '18,760'}}: {NO_NUMBER} '18,760'"),
    ("about equal", 2, {}, "'about equal': not quite: 2"),
    (object, 1.5, {}, "<class 'object'>: not quite: 1.5"),
])
def test_a_guess_is_judged(guess, right, tolerance, verdict):
    assert judged(guess, right, **tolerance) == verdict


@pytest.mark.parametrize("lab", catalogue.lab_names())
def test_every_page_judges_its_guesses(lab):
    code = ["".join(cell["source"]) for cell in committed.cells(lab) if cell["cell_type"] == "code"]
    guesses = [name for source in code for name in re.findall(r"^(guess\w*) = ", source, re.M)]
    calls = re.findall(r"judged\((?:guess|mine)", "\n".join(code))
    assert len(guesses) == len(calls) >= 6
    assert not re.search(r"\{guess\w*(\[\w+\])?\}|guess:\", guess", "\n".join(code)), "echoed"
