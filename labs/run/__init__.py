"""A run: its lab, options, files and lock; the launch of its workers, its supervision and its errors.

The packages load their public names lazily (PEP 562): `labs` alone loads no TensorFlow. No library does it, since
`labs check` has to run where no package is installed.
"""

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any


def attach_lazily(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package, by its `__name__` and `__file__`."""
    homes = public_names(Path(file))

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == package:
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(homes[name]), name)

    return load, lambda: sorted(homes), sorted(homes)


def public_names(file: Path) -> dict[str, str]:
    """Return each name that a package's `__init__.py` imports under `if TYPE_CHECKING`, and the module that has it."""
    return {alias.name: statement.module or "" for block in ast.parse(file.read_text(encoding="utf-8")).body
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
            for statement in block.body if isinstance(statement, ast.ImportFrom) for alias in statement.names}


if TYPE_CHECKING:
    from labs.run import atomic, fields, heartbeat
    from labs.run.catalogue import Lab, Sweep, divide
    from labs.run.errors import LabError
    from labs.run.fields import Options, Range
    from labs.run.worker import main
else:
    __getattr__, __dir__, __all__ = attach_lazily(__name__, __file__)
