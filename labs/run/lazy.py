"""Lazy public names of a package (PEP 562), which type checkers see: `labs list` loads no TensorFlow.

Written here and not taken from a library, because `labs check` has to run where no package is installed.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package; each name is loaded when it is first used.

    The names are those that the package imports under `if TYPE_CHECKING`, so they are written once. They must differ
    from the names of the package's modules: importing a module of the same name would replace the public name.

    Args:
        package: Its `__name__`.
        file: Its `__file__`.
    """
    homes = dict(_imports(ast.parse(Path(file).read_text(encoding="utf-8"))))

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == package:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(homes), sorted(homes)


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each name that a module imports under `if TYPE_CHECKING`, and the module that has it."""
    for block in tree.body:
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING":
            for statement in block.body:
                if isinstance(statement, ast.ImportFrom):
                    yield from ((alias.name, statement.module or "") for alias in statement.names)
