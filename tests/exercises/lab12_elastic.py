"""Made-up records of lab 12, and typical mistakes."""

from __future__ import annotations

import json

from labs.exercises.lab12_elastic import reference_latest
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


def careless(files):
    """Load the newest file, in whatever state it is."""
    names = sorted((name for name in files if name.endswith(".json")), key=lambda name: int(name[5:-5]))
    return json.loads(files[names[-1]])["step"] if names else 0


def by_name(files):
    """Compare the steps as text."""
    steps = [name[5:-5] for name in files if reference_latest({name: files[name]})]
    return int(max(steps, default="0"))


def by_number(files):
    """Trust the names."""
    return max([int(name[5:].partition(".")[0]) for name in files if name.startswith("step-")], default=0)


WRONG_CODE = [
    ("load_latest", lambda files: "step-8.json" if files else 0, "a whole number"),
    ("load_latest", careless, "raised JSONDecodeError"),
    ("load_latest", by_name, "as numbers, not as text"),
    ("load_latest", by_number, "the one before it must be used"),
    ("waste", lambda interval, save, life, restart: save / interval + (interval + restart) / life,
     "half of an interval"),
    ("waste", lambda interval, save, life, restart: save / interval + interval / 2 / life, "there is a restart"),
    ("waste", lambda interval, save, life, restart: (interval / 2 + restart) / life, "ends with a save"),
    ("waste", lambda interval, save, life, restart: (save + interval / 2 + restart) / life, "not once per failure"),
    ("waste", lambda interval, save, life, restart: 100 * save / interval + 100 * (interval / 2 + restart) / life,
     "not in percent"),
    ("rest", lambda order, seen, rank, size: order[rank::size], "used is used again"),
    ("rest", lambda order, seen, rank, size: order[seen:], "goes to one worker"),
    ("rest", lambda order, seen, rank, size: order[seen:][:1] if rank == 0 else [],
     "together, the ranks leave out an image that is still to be used"),
    ("rest", lambda order, seen, rank, size: order[seen:] if rank == 0 else [], "differ by more than one"),
    ("rest", lambda order, seen, rank, size: [99], "an image is not in the epoch, or occurs twice"),
]
