"""The result of a check: a state, and a cause with its cure if something is wrong."""

from __future__ import annotations

import dataclasses
import functools

from labs.run.errors import CURE_SEPARATOR, LabError


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of `labs check`."""

    state: str
    """"ok", "absent" (not here, and not needed), "warn" (slows a run or falsifies it) or "fail" (breaks the labs)."""
    message: str
    """What is there; if something is wrong, the cause."""
    cure: str = ""
    """What to do about it, as a command where possible."""
    name: str = ""
    """The subject of the line if it is not the check itself: a variable."""


ok, absent, warn, fail = (functools.partial(Finding, state) for state in ("ok", "absent", "warn", "fail"))


def refused(error: LabError) -> Finding:
    """Return a LabError as a failed check: its message is the cause and, after a semicolon, the cure."""
    cause, _, cure = str(error).partition(CURE_SEPARATOR)
    return fail(cause, cure)
