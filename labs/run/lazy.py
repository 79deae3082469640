"""Lazy public names of a package (PEP 562), which type checkers see: `labs` alone loads no TensorFlow.

No library: `labs check` has to run where no package is installed.
"""

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package, by its `__name__` and `__file__`.

    The names are those that the package imports under `if TYPE_CHECKING`: modules of the package, or names of modules.
    """
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
