"""Made-up records of lab 6, and typical mistakes."""

from __future__ import annotations

from tests.exercises.planted import made

TRIALS = [{"batch_size": batch, "fits": batch < 300, "peak_mb": 400 + 3.3 * batch} for batch in (64, 128, 256, 512)]

RECORDS = [
    made("lab06", epochs=0, search="batch_size", tables={"trials": TRIALS}),
    made("lab06", metrics={"parameters": 94_243}), made("lab06", 4, batch_size=16, metrics={"parameters": 94_243}),
]

WRONG = [
    ("q1", lambda runs, right: right / 4, "the weights alone"),
    ("q1", lambda runs, right: right / 2, "leaves out the optimizer"),
    ("q1", lambda runs, right: right * 2**20 / 1e6, "confuses MB"),
    ("q2", lambda runs, right: {"parameters": 0.25, "images": 0.25}, "does not divide the model"),
    ("q2", lambda runs, right: {"parameters": 1, "images": 1}, "its own share of a step's images"),
    ("q3", lambda runs, right: (400 + 3.3 * 256) / 256, "divides the whole peak by the number of images"),
]
