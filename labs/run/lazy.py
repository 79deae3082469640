"""Lazy public names of a package (PEP 562): `labs list` loads no TensorFlow.

Written here and not taken from a library, because `labs check` has to run where no package is installed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def attach(package: str, submod_attrs: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable, list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package; each name is loaded when it is first used.

    Args:
        package: Its `__name__`.
        submod_attrs: The public names of each module. None may be the name of a module of the package: importing that
            module would replace it.
    """
    homes = {name: module for module, names in submod_attrs.items() for name in names}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(homes), sorted(homes)
