"""Made-up records of lab 0, and typical mistakes."""

from __future__ import annotations

from tests.course.exercises.planted import made, totals

RECORDS = [made("lab00"), made("lab00", 4, 230)]

WRONG = [
    ("q1", lambda runs, right: 1 / right, "upside down"),
    ("q1", lambda runs, right: totals(runs)[0] / totals(runs)[1], "which are mostly start-up and first epoch"),
    ("q2", lambda runs, right: 4 * right, "that is the speedup"),
]
