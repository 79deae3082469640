"""Made-up records of lab 4, and typical mistakes."""

from __future__ import annotations

from tests.exercises.planted import ledger, made

RECORDS = [
    made("lab04", images_per_sec=100, batch_size=64, metrics=ledger(8, 0, 0.5, 1.5)),
    made("lab04", images_per_sec=80, batch_size=16, metrics=ledger(9, 0, 1, 2)),
    made("lab04", 4, 290, batch_size=64, metrics=ledger(2, 0.6, 0.3, 0.5)),
    made("lab04", 4, 180, batch_size=16, metrics=ledger(2.5, 2, 0.4, 0.6)),
]

WRONG = [
    ("q1", lambda runs, right: right | {16: 1 / right[16]}, "16: .* upside down"),
    ("q1", lambda runs, right: right | {64: 290 / 180}, "64: .* divides by the run of batch size 16"),
    ("q1", lambda runs, right: right[16], "the answer is {16: ..., 64: ...}, not"),
    ("q2", lambda runs, right: 1 / right / 16, "upside down"),
    ("q2", lambda runs, right: 4 * right, "that is the speedup"),
    ("q3", lambda runs, right: "compute", r"the largest entry, but .*: compare entry\(4\) - entry\(1\) / 4"),
    ("q3", lambda runs, right: "network", "'network' is not one of: communication, compute, input, other"),
    ("q4", lambda runs, right: 2.4 / 5.5, "counts the input as communication, as one of the reports did"),
    ("q4", lambda runs, right: 3 / 5.5, "counts everything but computing as communication"),
    ("q4", lambda runs, right: 2.0, "in seconds"),
]
