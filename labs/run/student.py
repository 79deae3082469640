"""The student whose runs these are: `LABS_STUDENT` stands in their records and seeds them."""

from __future__ import annotations

import hashlib
import os
import re

from labs.run.errors import LabError, quoted

VARIABLE = "LABS_STUDENT"
ID = r"[A-Za-z0-9][A-Za-z0-9_.+=-]{0,99}"
"""A student's id: a part of file names and tables that means nothing to a shell or a spreadsheet."""


def is_id(text: str) -> bool:
    """Return whether a text can be a student's id."""
    return re.fullmatch(ID, text) is not None


def student_id() -> str | None:
    """Return the student's id, or None if `LABS_STUDENT` is not set.

    Raises:
        LabError: The variable's value is not an id.
    """
    text = os.environ.get(VARIABLE) or None
    if text and not is_id(text):
        raise LabError(f"{VARIABLE}={quoted(text)} is not an id of letters, digits, '-', '_' and '.'; "
                       f"export {VARIABLE}=s1234")
    return text


def default_seed(seed: int) -> int:
    """Return the seed of a run whose command line gives none: the student's own, or else the preset's.

    Args:
        seed: The preset's.
    """
    own = student_id()
    return personal_seed(own) if own else seed


def personal_seed(text: str) -> int:
    """Return the seed that belongs to a student's id, or to a longer text that begins with it."""
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % 10**9
