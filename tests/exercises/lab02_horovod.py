"""Made-up records of lab 2, and typical mistakes."""

from __future__ import annotations

import math

from tests.exercises.planted import made, totals

RECORDS = [
    made("lab02", images_per_sec=100), made("lab02", 4, 230),
]

WRONG = [
    ("q1", lambda runs, right: 1 / right, r"throughput\(1\) / throughput\(4\), upside down"),
    ("q1", lambda runs, right: totals(runs)[0] / totals(runs)[1], "which are mostly start-up and first epoch"),
    ("q1", lambda runs, right: right / 4, "that is the scaling efficiency"),
    ("q1", lambda runs, right: 0.5, "below 1, unlike your runs: is it inverted"),
    ("q2", lambda runs, right: 4 * right, "that is the speedup"),
    ("q3", lambda runs, right: math.ceil(1000 / 32), "what one worker alone would take"),
    ("q3", lambda runs, right: 1000 / 128, "not rounded up"),
    ("q4", lambda runs, right: 1 - right, "the share that no worker sees"),
    ("q4", lambda runs, right: 1 / 4, "the share of one worker; the others see some"),
]
