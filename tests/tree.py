"""A copy of the clone, as a commit has it, for tests that change files of the kit."""

from __future__ import annotations

import shutil
from pathlib import Path

from labs.run.paths import ROOT


def copied(folder: Path) -> Path:
    """Copy the clone to `folder`, which does not exist yet, without environments, caches and results; return it."""
    left_out = shutil.ignore_patterns(".venv*", ".git", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info")
    return shutil.copytree(ROOT, folder, ignore=lambda parent, names: left_out(parent, names)
                           | ({"results"} if Path(parent) == ROOT else set()))  # The runs, not the package.
