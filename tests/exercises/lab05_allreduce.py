"""Made-up records of lab 5, and typical mistakes."""

from __future__ import annotations

import math

from tests.exercises.planted import IMAGES, made


def allreduce(nbytes: int, seconds: float, library: str = "Horovod over MPI") -> dict:
    return {"collective": "allreduce", "library": library, "bytes": nbytes, "seconds": seconds}


def wire(batch_size: int) -> dict:
    return {"batch_size": batch_size, "steps_per_epoch": math.ceil(IMAGES / (4 * batch_size))}


KINDS = {"gradients": 9_000_000, "checks: config, data, digests of weights": 30_000, "metrics": 40,
         "initial weights and optimizer state": 500_000, "decisions of rank 0": None}
MESSAGES = [{"kind": kind, "bytes": count} for kind, count in KINDS.items()]

RECORDS = [
    made("lab05", 4, epochs=0, tables={"collectives": [allreduce(8, 1e-4), allreduce(16_000_000, 0.02),
                                                       allreduce(16_000_000, 0.01, "raw MPI")]}),
    made("lab05", 4, epochs=0, study="traffic", metrics={"gradient_bytes": 986_728},
         tables={"wire": [wire(16), wire(32), wire(64)]}),
    made("lab05", 4, epochs=1, study="messages", tables={"messages": MESSAGES}),
]

WRONG = [
    ("q1", lambda runs, right: 0.8, "that is algbw"),
    ("q1", lambda runs, right: 8 * right, "a byte has 8 bits"),
    ("q1", lambda runs, right: right / 4, "counts numbers, not bytes"),
    ("q2", lambda runs, right: 2 * right, "grows with the batch; but workers exchange gradients"),
    ("q2", lambda runs, right: 986_728, "the size of the gradients"),
    ("q3", lambda runs, right: 1, "the factor for a step, which sends as much as before"),
    ("q3", lambda runs, right: 4, "upside down: the larger batch has fewer steps"),
    ("q4", lambda runs, right: "gradients", "which kind comes next"),
    ("q4", lambda runs, right: "checks: config, data, digests of weights", "another kind has more bytes"),
]
