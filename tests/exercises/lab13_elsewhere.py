"""Made-up records of lab 13, and typical mistakes."""

from __future__ import annotations

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
