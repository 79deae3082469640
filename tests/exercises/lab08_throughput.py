"""Made-up records of lab 8, and typical mistakes."""

from __future__ import annotations

from tests.exercises.planted import made

RECORDS = [
    made("lab08", images_per_sec=100, epochs=5, metrics={"input_images_per_sec": 900}),
    made("lab08", 4, 190, batch_size=4, metrics={"input_images_per_sec": 2000}),
    made("lab08", 4, 310, metrics={"input_images_per_sec": 2000}),
]

WRONG = [
    ("q1", lambda runs, right: 4 * right, "that is the speedup"),
    ("q2", lambda runs, right: (4 - 1.9) / 3, "Gustafson's share"),
    ("q2", lambda runs, right: 1 - 1.9 / 4, "one minus the efficiency"),
    ("q3", lambda runs, right: 1 / right, "upside down"),
]
