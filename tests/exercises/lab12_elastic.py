"""Made-up records of lab 12, and typical mistakes."""

from __future__ import annotations

from tests.exercises.planted import made


def event(kind: str, seconds: float, steps_lost: int, seconds_lost: float) -> dict:
    return {"kind": kind, "seconds": seconds, "size": 4, "step": 9, "steps_lost": steps_lost,
            "seconds_lost": seconds_lost}


RECORDS = [
    made("lab12", 4, study="resume", metrics={"steps_lost": 2},
         tables={"events": [event("run ended and resumed", 40, 2, 10.5)]}),
    made("lab12", 4, tables={"events": [event("start", 10.9, 0, 10.9), event("worker lost", 14.7, 3, 0.5),
                                        event("worker joined", 27.5, 0, 9.1)]}),
]

WRONG = [
    ("q1", lambda runs, right: 2 * 64, "the images of one worker"),
    ("q1", lambda runs, right: 2, "that is the number of steps"),
    ("q2", lambda runs, right: {"checkpoint": 4, "elastic": 2}, "checkpoint: .* the most that can be lost"),
    ("q3", lambda runs, right: 20.5, "includes the start"),
    ("q3", lambda runs, right: 27.5, "when the last event happened"),
]
