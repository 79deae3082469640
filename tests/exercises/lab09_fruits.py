"""Made-up records of lab 9, and typical mistakes."""

from __future__ import annotations

from tests.exercises.planted import made, totals

RECORDS = [
    made("lab09", trials=3), made("lab09", images_per_sec=100), made("lab09", 4, 260, scaling="none"),
    made("lab09", base_lr=0.1, leak_check=False),
]

WRONG = [
    ("q1", lambda runs, right: totals(runs)[0] / totals(runs)[1], "which are mostly start-up and first epoch"),
    ("q2", lambda runs, right: right | {"run": runs[1]["run"]}, "only its number of workers differs"),
    ("q2", lambda runs, right: right | {"run": runs[0]["run"]}, "so this is its baseline"),
    ("q2", lambda runs, right: right | {"setting": "leak_check"}, "setting: .* does not matter here"),
    ("q3", lambda runs, right: 1 - right, "the share of everything else"),
    ("q3", lambda runs, right: 1.5 * right, "counts the first epoch as one of the others, but it takes longer"),
]
