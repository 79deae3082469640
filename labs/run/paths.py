"""Where things live on this machine; each place can be moved with an environment variable."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def data_dir() -> Path:
    """Return the folder of the data sets: `LABS_DATA`, else `data/` of the clone."""
    return Path(os.environ.get("LABS_DATA") or ROOT / "data")


def results_dir() -> Path:
    """Return the folder of the results store: `LABS_RESULTS`, else `results/` of the clone."""
    return Path(os.environ.get("LABS_RESULTS") or ROOT / "results")


def cache_dir() -> Path:
    """Return the folder of what can be made again at any time: `LABS_CACHE`, else `.cache/` beside the data."""
    return Path(os.environ.get("LABS_CACHE") or data_dir() / ".cache")


def temporary_dir() -> Path:
    """Return the folder of temporary files that runs share: `TMPDIR`, which `labs run` replaces for its workers."""
    return Path(os.environ.get("LABS_TMPDIR") or tempfile.gettempdir())


def shown(path: Path) -> str:
    """Return a path as a person reads it best: from the clone's top, if it lies below."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
