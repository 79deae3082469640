"""Names of labs and runs, and the folder of a run: results/<lab>/<run>."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.run.errors import LabError, quoted
from labs.run.paths import results_dir

if TYPE_CHECKING:
    from labs.run.options import Options


LONGEST_NAME = 100
"""Bytes: file systems allow 255, and some file names contain the run's name."""


def lab_name(config: Any) -> str:
    """Return the name of the lab to which a Config or its class belongs: the name of its module."""
    module = (config if isinstance(config, type) else type(config)).__module__
    if module == "__main__":  # A program, started by its path or with `python -m`.
        main = sys.modules[module]
        module = main.__spec__.name if main.__spec__ else Path(main.__dict__.get("__file__", "interactive")).stem
    return module.removeprefix("labs.")


def config_hash(config: Any) -> str:
    """Return eight hexadecimal digits that are equal for two Configs only if all their values are."""
    settings = json.dumps(dataclasses.asdict(config), sort_keys=True, default=str)
    return hashlib.blake2b(settings.encode(), digest_size=4).hexdigest()


def check_name(name: str, option: str = "--name") -> None:
    """Refuse a name that leads outside its folder, or that a terminal or a shell would misread.

    Args:
        name: Of a run, or of another folder.
        option: The option that names it.

    Raises:
        LabError: Names the problem.
    """
    problems = {
        "is empty": not name.strip(),
        f"is longer than {LONGEST_NAME} bytes": len(name.encode(errors="replace")) > LONGEST_NAME,
        "has a slash: it names one folder, and --results chooses where the folders of runs are": "/" in name,
        "has a control character or one that cannot be printed": not name.isprintable(),
        "begins with a dot or a dash": name.startswith((".", "-")),
        "begins or ends with a space": name != name.strip(),
    }
    if wrong := next((problem for problem, applies in problems.items() if applies), ""):
        raise LabError(f"{option} {quoted(name)} {wrong}; choose letters, digits, '-', '_' and '.', as in "
                       f"{option} night-1")


def results_root(options: Options) -> Path:
    """Return the folder that holds the runs of all labs."""
    return Path(options.results) if options.results else results_dir()
