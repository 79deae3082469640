"""Data that several processes share: one makes it, the others wait for it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import Timeout

from labs.run import paths, terminal
from labs.run.errors import LabError
from labs.run.run_lock import Lock

PATIENCE = 3.0
"""Seconds to wait before a message names the holder of the lock."""


@contextlib.contextmanager
def exclusive(path: Path, doing: str) -> Iterator[None]:
    """Hold a lock file in this block.

    Args:
        path: The lock file; its folder is made if it is missing.
        doing: What the holder does, for the message of those that wait ("downloading mnist").

    Raises:
        LabError: The folder cannot be written, or its file system has no locks.
    """
    lock = Lock(path)
    with contextlib.ExitStack() as held:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                held.enter_context(lock.hold(PATIENCE))
            except Timeout:
                terminal.note(f"waiting for {lock.holder()}, which is {doing}")
                held.enter_context(lock.hold(-1))
            lock.sign()
        except OSError as error:
            variable = "LABS_CACHE" if path.is_relative_to(paths.cache_dir()) else "LABS_DATA"
            raise LabError(f"cannot lock {path} ({error.strerror or error}); set {variable} to a folder of your own"
                           ) from error
        yield


@contextlib.contextmanager
def make_once(folder: Path, lock: Path, doing: str) -> Iterator[bool]:
    """Hold a lock in this block, which makes a folder unless it is there; yield whether it is missing.

    Raises:
        LabError: The lock cannot be taken (see `exclusive`).
    """
    if folder.is_dir():
        yield False
        return
    with exclusive(lock, doing):
        for leftover in folder.parent.glob(f".{folder.name}.*.part"):  # From killed processes.
            shutil.rmtree(leftover, ignore_errors=True)
        yield not folder.is_dir()
