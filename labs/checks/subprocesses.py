"""Programs that a check starts: what they say, within a time limit, and nothing of them is left behind."""

from __future__ import annotations

import dataclasses
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Answer:
    """How a program ended, and what it said."""

    code: int | None
    """None: it had not ended in time."""
    out: str
    err: str
    seconds: float
    """The time limit."""

    @property
    def end(self) -> str:
        """Why it failed, in its own last words if it had any."""
        if self.code is None:
            return f"had not ended after {self.seconds:.0f} s"
        if self.code < 0:
            return f"was ended by {signal.Signals(-self.code).name}"
        lines = [line.strip() for line in self.err.splitlines() if line.strip(" -\0")]
        telling = [line for line in lines if re.search(r"\b\w*Error: |\berror: |\bsignal \d", line)]
        return (telling or lines or [f"ended with status {self.code} and without a word"])[-1]


def ask(command: Sequence[object], seconds: float, env: Mapping[str, str] | None = None) -> Answer:
    """Run a program to its end or for so many seconds; whatever happens, all that it started ends too.

    Args:
        command: Its command line.
        seconds: The time limit.
        env: Its environment; this process's, if left out.
    """
    from labs.launch import local

    with local.started([str(word) for word in command], env) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return Answer(None, "", "", seconds)
    return Answer(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"), seconds)
