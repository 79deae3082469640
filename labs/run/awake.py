"""A clock that pauses while this process is stopped: by Ctrl-Z, by Slurm, or with the whole machine."""

from __future__ import annotations

import threading
import time


class AwakeClock:
    """Counts the seconds in which this process was running; changes of the system time have no effect.

    Args:
        longest: The clock must be read at least this often, in seconds. If a process does not run for longer, it was
            stopped, and the rest of that time does not count.
    """

    def __init__(self, longest: float):
        self._longest, self._lock = longest, threading.Lock()
        self._seconds, self._read = 0.0, time.monotonic()

    def now(self) -> float:
        """Return the seconds since this clock was made."""
        with self._lock:
            now = time.monotonic()
            self._seconds += min(now - self._read, self._longest)
            self._read = now
            return self._seconds
