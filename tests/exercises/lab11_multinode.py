"""Made-up records of lab 11, and typical mistakes."""

from __future__ import annotations

import math

from tests.exercises.planted import made

RECORDS = [
    made("lab11", images_per_sec=90, base_batch_size=20, metrics={"test_accuracy": 0.93, "test_images": 359},
         batch_size=128),
    made("lab11", 4, 280, base_batch_size=20,
         metrics={"test_accuracy": 0.96, "test_images": 359, "allreduce_seconds": 0.07}),
]

WRONG = [
    ("q1", lambda runs, right: right | {"global_batch_size": 4 * 32}, "counts nodes; hvd.size()"),
    ("q1", lambda runs, right: right | {"scaled_lr": 0.008}, "k is global batch / base_batch_size"),
    ("q1", lambda runs, right: right | {"steps_per_epoch": 1000 // 256}, "leaves out the last, smaller step"),
    ("q2", lambda runs, right: 4 * right, "uses the batch of one worker"),
    ("q3", lambda runs, right: 0.03, "the difference itself"),
    ("q3", lambda runs, right: 0.03 / math.sqrt(0.93 * 0.07 / 359), "standard errors of one accuracy"),
]
