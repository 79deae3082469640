"""Made-up records of lab 13, and typical mistakes."""

from __future__ import annotations

import numpy as np

from labs.exercises.lab13_elsewhere import reference_adam
from tests.exercises.planted import made


def rounds(method: str, compute: float, step: float) -> list[dict]:
    return [{"round": number, "method": method, "compute_seconds": compute + noise, "step_seconds": step + noise}
            for number, noise in enumerate((0.0, 0.001, -0.0005), 1)]


RECORDS = [made("lab13", 4, epochs=0, metrics={"parameters": 16_330}, tables={"rounds": [
    *rounds("plain", 0.010, 0.014), *rounds("fp16", 0.011, 0.0145), *rounds("SyncBN", 0.013, 0.019)]})]

WRONG = [
    ("q1", lambda runs, right: 10 / 14, "the share of the computation"),
    ("q1", lambda runs, right: 0.4, "divides by the computation"),
    ("q1", lambda runs, right: 100 * right, "that is in percent"),
    ("q2", lambda runs, right: "plain", "another method has a larger difference"),
    ("q3", lambda runs, right: 16 * 16_330, "without ZeRO"),
    ("q3", lambda runs, right: 4 * 16_330, "that is stage 3"),
    ("q3", lambda runs, right: 2 * 16_330, "the moments alone"),
]


def zero(reduce=np.mean, gather=True):
    """Return a step of ZeRO with a mistake: how gradients are combined, or whether the parts are gathered."""
    def step(weights, gradients, moments):
        size = len(weights)
        new = [reference_adam(*parts) for parts in zip(
            np.split(weights[0], size), np.split(reduce(gradients, axis=0), size), moments, strict=True)]
        gathered = [np.concatenate([new[part][0] if gather or part == rank else old
                                    for part, old in enumerate(np.split(weights[0], size))]) for rank in range(size)]
        return gathered, [each for _, each in new]

    return step


def kept(parameters, workers, stage):
    divided = (0, 8, 12, 16)[stage]
    return parameters * (16 - divided + divided / workers)


WRONG_CODE = [
    ("zero_step", lambda weights, gradients, moments: weights, r"the result is \(weights, moments\)"),
    ("zero_step", zero(reduce=np.sum), "the sum of the gradients"),
    ("zero_step", zero(gather=False), "the all-gather is missing"),
    ("zero_step", zero(reduce=lambda gradients, axis: gradients[0]), "used its own gradients|not those of a plain"),
    ("zero_step", lambda weights, gradients, moments: (zero()(weights, gradients, moments)[0], moments),
     "are not those that `adam` returned"),
    ("zero_step", lambda weights, gradients, moments: ([each[:0] for each in weights], moments), "has all parts"),
    ("bytes_per_worker", lambda p, n, stage: 16 * p, "divides nothing"),
    ("bytes_per_worker", lambda p, n, stage: kept(p, n, stage) / 4, "counts numbers"),
    ("bytes_per_worker", lambda p, n, stage: 16 * p / n, "divides everything; that is stage 3"),
    ("bytes_per_worker", lambda p, n, stage: kept(p, n, stage) * n, "of all workers together"),
    ("bubble", lambda p, m: (p - 1) / m, "the step is longer"),
    ("bubble", lambda p, m: m / (m + p - 1), "is busy"),
    ("bubble", lambda p, m: p / (m + p - 1), "starts after p - 1"),
    ("bubble", lambda p, m: (p - 1) / (m + p), "ends after m"),
    ("bubble", lambda p, m: 100 * (p - 1) / (m + p - 1), "in percent"),
]
