"""Working copies of the notebooks: students edit these, so that `git pull` never conflicts with what they wrote."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from labs.run import atomic

COPIED = ".copied.json"
"""File beside the copies: the SHA-256 of each notebook as it was copied. A copy that differs from it was edited."""


def update(notebooks: Path, work: Path) -> list[str]:
    """Copy the notebooks, except over edited copies; return the edited copies whose notebook has a new version.

    Args:
        notebooks: The folder of the committed notebooks.
        work: The folder of the copies; it is made if it does not exist.

    Raises:
        OSError: The copies cannot be written.
    """
    work.mkdir(exist_ok=True)
    copied: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError):
        copied = json.loads((work / COPIED).read_text())
    outdated = []
    for notebook in sorted(notebooks.glob("*.ipynb")):
        copy, newest, last = work / notebook.name, _digest(notebook), copied.get(notebook.name)
        if copy.exists() and _digest(copy) not in (last, newest):
            outdated += [notebook.name] * (last != newest)
            continue
        if not copy.exists() or last != newest:
            with atomic.writing(copy) as file:
                file.write(notebook.read_bytes())
        copied[notebook.name] = newest
    atomic.write_json(work / COPIED, copied)
    return outdated


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
