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


def shares(n, speedups):
    """Return the s that each point above one worker needs."""
    return [(1 / speedup - 1 / size) / (1 - 1 / size) for size, speedup in zip(n, speedups, strict=True) if size > 1]


WRONG_CODE = [
    ("karp_flatt", lambda n, speedup: (n - speedup) / (n - 1), "that is Gustafson's share"),
    ("karp_flatt", lambda n, speedup: 1 - (1 / speedup - 1 / n) / (1 - 1 / n), "an ideal speedup needs no"),
    ("karp_flatt", lambda n, speedup: (1 / speedup - 1 / n) / (1 - 1 / n) if n > 1 else 0.0, "not ValueError"),
    ("fit_amdahl", lambda n, speedups: max(shares(n, speedups)), "has a smaller sum of squares"),
    ("fit_amdahl", lambda n, speedups: sum(shares(n, speedups)) / len(shares(n, speedups)), "that is the plain mean"),
    ("fit_amdahl", lambda n, speedups: 2 * max(shares(n, speedups)), "not between the smallest and the largest"),
    ("input_bound", lambda compute, reading, one_core: min(compute, reading), "reading takes time away"),
    ("input_bound", lambda compute, reading, one_core: compute, "on one core the reading takes time away"),
    ("input_bound", lambda compute, reading, one_core: compute + reading, "faster than its slower stage"),
]
