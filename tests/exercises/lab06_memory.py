"""Made-up records of lab 6, and typical mistakes."""

from __future__ import annotations

import math

import numpy as np

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

KEPT = {"sgd": 0, "momentum": 1, "adam": 2}


def never_refuses(fixed, per_image, batch, limit):
    return max(1, math.ceil(batch / max(1, (limit - fixed) // per_image)))


def model_divided_too(fixed, per_image, batch, limit):
    return next(n for n in range(1, batch + 1) if (fixed + per_image * batch) / n <= limit)


WRONG_CODE = [
    ("model_bytes", lambda parameters, optimizer: (2 + KEPT[optimizer]) * parameters, "a float32 number has 4 bytes"),
    ("model_bytes", lambda parameters, optimizer: 4 * (1 + KEPT[optimizer]) * parameters,
     "one number per parameter is missing"),
    ("model_bytes", lambda parameters, optimizer: 16 * parameters, "as many numbers as the optimizer keeps"),
    ("model_bytes", lambda parameters, optimizer: 4 * (2 + KEPT.get(optimizer, 2)) * parameters, "not ValueError"),
    ("workers_needed", lambda fixed, per_image, batch, limit: batch, "fewer workers can take this step"),
    ("workers_needed", lambda fixed, per_image, batch, limit: per_image * batch / (limit - fixed),
     "a whole number, and no worker is without an image"),
    ("workers_needed", model_divided_too, "the largest share does not fit"),
    ("workers_needed", lambda fixed, per_image, batch, limit: max(1, round(per_image * batch / (limit - fixed))),
     "a remainder goes to someone"),
    ("workers_needed", never_refuses, "not even one image per worker fits"),
    ("accumulate", lambda gradients, images: np.sum(gradients, axis=0), "that is the sum"),
    ("accumulate", lambda gradients, images: np.mean(gradients, axis=0), "counts less"),
    ("accumulate", lambda gradients, images: gradients[-1], "not the mean over all images"),
    ("accumulate", lambda gradients, images: float(np.mean(gradients)), "one array, of the shape"),
]
