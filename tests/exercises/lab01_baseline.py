"""Made-up records of lab 1, and typical mistakes."""

from __future__ import annotations

from tests.exercises.planted import made


def with_first_epoch(run) -> float:
    history = run["history"]
    return sum(row["train_seconds"] for row in history) / sum(row["steps"] for row in history)


RECORDS = [
    *(made("lab01", images_per_sec=throughput, batch_size=batch, metrics={"cpu_percent": busy})
      for batch, throughput, busy in ((8, 100, 40), (32, 260, 70), (1024, 350, 99), (128, 410, 90))),
]

WRONG = [
    ("q1", lambda runs, right: 40 * 1000 / 128, "each epoch ends with its own smaller batch"),
    ("q1", lambda runs, right: 40 * 7, "leaves out the last, smaller batch"),
    ("q1", lambda runs, right: 3 * 8, "that the run itself took"),
    ("q2", lambda runs, right: 60 * right, "sixty times too large"),
    ("q2", lambda runs, right: 40 * 469 / 60 * with_first_epoch(runs[0]), "includes the first epoch"),
    ("q2", lambda runs, right: 40_000 / runs[0]["timings"]["images_per_sec"], "does not count the padding"),
    ("q3", lambda runs, right: 1024, "busy is not fast"),
    ("q3", lambda runs, right: 8, "they train the fewest images"),
    ("q3", lambda runs, right: 64, "64 is not one of: 8, 32, 128, 1024"),
]
