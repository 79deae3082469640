"""Lazy public names of a package (PEP 562): `labs list` loads no TensorFlow.

Written here and not taken from a library, because `labs check` has to run where no package is installed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def attach(package: str, submod_attrs: Mapping[str, Sequence[str]],
           submodules: Sequence[str] = ()) -> tuple[Callable[[str], Any], Callable, list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package; each name is loaded when it is first used.

    Args:
        package: Its `__name__`.
        submod_attrs: The public names of each module. They must differ from the names of the package's modules:
            importing a module of the same name would replace the public name.
        submodules: Modules that are public as a whole.
    """
    homes = {name: module for module, names in submod_attrs.items() for name in names}
    public = sorted({*homes, *submodules})

    def load(name: str) -> Any:
        if name in submodules:
            return importlib.import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: public, public
