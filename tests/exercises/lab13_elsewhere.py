"""Made-up records of lab 13, and typical mistakes."""

from __future__ import annotations

import numpy as np

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


def zero(reduce=np.mean, gather=True, own=False, whole=False):
    """Return a step of ZeRO with a mistake.

    Args:
        reduce: How gradients are combined.
        gather: Whether the parts are gathered.
        own: Whether each rank uses its own gradients.
        whole: Whether every rank updates every part.
    """
    def step(weights, gradients, moments, adam):
        size = len(weights)
        held, kept = [], list(moments)
        parts = []
        for rank in range(size):
            gradient = gradients[rank] if own else reduce(gradients, axis=0)
            for part in range(size) if whole else [rank]:
                new = adam(np.split(weights[rank], size)[part], np.split(gradient, size)[part], moments[part])
                if part == rank:
                    parts.append(new[0])
                    kept[rank] = new[1]
        for rank in range(size):
            mine = np.concatenate(parts)
            if not gather:
                mine = np.concatenate([parts[part] if part == rank else old
                                       for part, old in enumerate(np.split(weights[rank], size))])
            held.append(mine)
        return held, kept

    return step


def kept(parameters, workers, stage):
    divided = (0, 8, 12, 16)[stage]
    return parameters * (16 - divided + divided / workers)


WRONG_CODE = [
    ("zero_step", lambda weights, gradients, moments, adam: weights, r"the result is \(weights, moments\)"),
    ("zero_step", zero(reduce=np.sum), "the sum of the gradients"),
    ("zero_step", zero(gather=False), "the all-gather is missing"),
    ("zero_step", zero(own=True), "not those of a plain step"),
    ("zero_step", zero(whole=True), "each weight is updated by one rank"),
    ("zero_step", lambda weights, gradients, moments, adam: (zero()(weights, gradients, moments, adam)[0], moments),
     "are not those that `adam` returned"),
    ("zero_step", lambda weights, gradients, moments, adam: tuple(zip(*(
        adam(w, np.mean(gradients, axis=0), m) for w, m in zip(weights, moments, strict=True)), strict=True)),
     "raised ValueError: adam got 2 weights, 2 gradients and moments of 1 weights"),
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
