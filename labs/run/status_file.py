"""Status files: a small JSON object that one process rewrites in place, about once a second, and others read."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from labs.run import atomic
from labs.run.errors import LabError

BYTES = 4096
"""The size of each file, which never grows."""
Kind = TypeVar("Kind")


class StatusFile:
    """A status file of this process. A rename a second, as of an atomic write, would burden a shared file system."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._file = path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)

    def write(self, values: Mapping[str, Any]) -> None:
        """Replace the content, in one write."""
        with atomic.with_filename(self._path):
            os.pwrite(self._file, json.dumps(values).encode().ljust(BYTES), 0)

    def sync(self) -> None:
        """Wait until the content is on the shared file system: other nodes see it only then."""
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file; it stays."""
        with contextlib.suppress(OSError):  # Of a run that has ended, NFS may say that it is deleted.
            os.close(self._file)


def read_all(folder: Path, pattern: str, kind: Callable[..., Kind]) -> Iterator[Kind]:
    """Yield the contents of the status files whose names match a pattern, by name.

    Args:
        folder: It may be missing.
        kind: Called with the values of each file.
    """
    for path in sorted(folder.glob(pattern)):
        try:
            yield kind(**json.loads(atomic.read_bytes(path, BYTES)))
        except (ValueError, TypeError, LabError, OSError):
            continue  # Read in the middle of a write, or deleted: the next read succeeds. Or of another version.
