"""Made-up records of lab 7, and typical mistakes."""

from __future__ import annotations

from tests.exercises.planted import made

VIT = {"parameters": 114_250}

RECORDS = [
    made("lab07", images_per_sec=100, metrics={"parameters": 6_858}, width=16),
    made("lab07", 4, 60, metrics={"parameters": 6_858}, width=16, batch_size=8, traffic=False),
    made("lab07", images_per_sec=100, metrics=VIT), made("lab07", 4, 170, metrics=VIT, batch_size=8, backend="gloo"),
]

WRONG = [
    ("q1", lambda runs, right: 20 * right, "far off; check the units, and which number is divided by which"),
    ("q1", lambda runs, right: right / 32, "the number of bytes of one step"),
    ("q1", lambda runs, right: 1000 * 32 * 32 * 3 * 4 / 1e6, "the images, which are not exchanged"),
    ("q1", lambda runs, right: 8 * right, "in bits; a byte has 8 bits"),
    ("q2", lambda runs, right: 1 / right, "upside down"),
    ("q3", lambda runs, right: 4, "these workers had fewer images_per_sec"),
]
