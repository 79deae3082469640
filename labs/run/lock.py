"""Lock files: one process holds a resource, and a note beside the lock names the holder."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from labs.run import atomic


class Lock:
    """A lock file and its note. If the process that holds the lock dies, the kernel releases it.

    Args:
        path: The lock file; its folder must exist.
        note: The file that names the holder; if omitted, it lies beside the lock.
    """

    def __init__(self, path: Path, note: Path | None = None):
        self.path, self.note = path, note or path.with_suffix(".holder")

    @contextlib.contextmanager
    def hold(self, patience: float = 0.0) -> Iterator[None]:
        """Hold the lock in this block.

        Args:
            patience: How long to wait for another holder, in seconds; -1 waits without limit.

        Raises:
            Timeout: Another process still holds it.
            OSError: The folder cannot be written, or its file system has no locks.
        """
        with FileLock(self.path, timeout=patience):
            yield

    def sign(self) -> None:
        """Write this process's name into the note; only the holder may call this."""
        atomic.write_text(self.note, f"process {os.getpid()} on {socket.gethostname()}")

    def holder(self) -> str:
        """Return the process that signed last, for messages."""
        return atomic.read_text(self.note) if self.note.exists() else "another process"

    def is_held(self) -> bool:
        """Return whether a process holds the lock; False if it cannot be opened, which `hold` reports."""
        try:
            if self.path.exists():
                with self.hold():
                    pass
        except Timeout:
            return True
        except OSError:
            pass
        return False
