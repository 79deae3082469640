"""Made-up records of lab 4, and typical mistakes."""

from __future__ import annotations

import math

import numpy as np

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


def standard_error(values) -> float:
    return np.std(values, ddof=1) / math.sqrt(len(values))


def with_half_width(relative):
    """Return an `efficiency` whose interval has a wrong half-width, relative to the value."""
    def efficiency(one, many, n):
        value = np.mean(many) / np.mean(one) / n
        half = value * relative(np.array(one) / np.mean(one), np.array(many) / np.mean(many))
        return value, value - half, value + half

    return efficiency


def both(one, many) -> float:
    return 2.2 * math.hypot(standard_error(one), standard_error(many))


def scaled(factor):
    """Return an `efficiency` that is right but for a factor."""
    return lambda one, many, n: tuple(factor(n) * each for each in with_half_width(both)(one, many, n))


def upside_down(one, many, n):
    return with_half_width(both)(many, one, n)


def above_the_value(one, many, n):
    value, _, high = with_half_width(both)(one, many, n)
    return value, value, 2 * high - value


WRONG_CODE = [
    ("efficiency", lambda one, many, n: np.mean(many) / np.mean(one) / n, "three numbers"),
    ("efficiency", scaled(lambda n: n), "that is the speedup"),
    ("efficiency", upside_down, "upside down: faster is larger"),
    ("efficiency", scaled(lambda n: 1 / n), "the value is not the efficiency"),
    ("efficiency", with_half_width(lambda one, many: 0), "no width, though the repeats vary"),
    ("efficiency", with_half_width(lambda one, many: both(one, many) / 2.2), "too narrow"),
    ("efficiency", with_half_width(lambda one, many: 2.2 * standard_error(many)), "too narrow"),
    ("efficiency", lambda one, many, n: (np.mean(many) / np.mean(one) / n, min(many) / max(one) / n,
                                         max(many) / min(one) / n), "too wide"),
    ("efficiency", above_the_value, "the edge of its interval"),
    ("efficiency", lambda one, many, n: with_half_width(both)(one * (2 if len(one) < 2 else 1), many * (
        2 if len(many) < 2 else 1), n), "not ValueError: one repeat"),
    ("excess", lambda one, many, n: {entry: many[entry] - one[entry] for entry in one}, "takes exactly its ideal time"),
    ("excess", lambda one, many, n: {entry: max(many[entry] - one[entry] / n, 0) for entry in one},
     "must be its seconds minus the ideal"),
    ("excess", lambda one, many, n: max(many), "a dictionary with the entries of the ledger"),
]
