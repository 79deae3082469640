"""What a check found: green, or one cause with one cure."""

from __future__ import annotations

import dataclasses

from labs.run.errors import CURE_SEPARATOR, LabError


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of `labs check`."""

    state: str
    """"ok", "absent" (not here, and not needed), "warn" (slows a run or falsifies it) or "fail" (breaks the labs)."""
    found: str
    """What is there; where something is wrong, its cause."""
    cure: str = ""
    """What to do about it, as something to type where it can be typed."""
    name: str = ""
    """What the line is about, where that is not the check itself: a variable."""


def ok(found: str) -> Finding:
    """Return a green line."""
    return Finding("ok", found)


def absent(found: str, cure: str = "") -> Finding:
    """Return the line of something that a laptop may well lack; the cure brings it."""
    return Finding("absent", found, cure)


def warn(cause: str, cure: str) -> Finding:
    """Return the line of something that makes a run slow or a result doubtful."""
    return Finding("warn", cause, cure)


def fail(cause: str, cure: str) -> Finding:
    """Return the line of something that breaks the labs."""
    return Finding("fail", cause, cure)


def refused(error: LabError) -> Finding:
    """Return a refusal of the kit's own as a failure: its one line is the cause and, behind a semicolon, the cure."""
    cause, _, cure = str(error).partition(CURE_SEPARATOR)
    return fail(cause, cure)
