"""Made-up records of lab 10, and typical mistakes."""

from __future__ import annotations

from tests.exercises.planted import made

RECORDS = [
    made("lab10", 4, epochs=4, scores=(0.3, 0.6, 0.5, 0.4), validation_split=0.25),
]

WRONG = [
    ("q1", lambda runs, right: 1 - 0.2 - 0.25, "a share of the images outside the test"),
    ("q1", lambda runs, right: 0.75, "that ignores the test images"),
    ("q2", lambda runs, right: 1.5 / 10, "the share of the whole epoch is asked for"),
    ("q2", lambda runs, right: 6 / 53, "includes the first epoch"),
    ("q3", lambda runs, right: 1, "Python's indices from 0"),
    ("q3", lambda runs, right: 4, r"best \*?training\*? accuracy"),
    ("q4", lambda runs, right: "val_accuracy of the best epoch", "chosen for being highest"),
]
