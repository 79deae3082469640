"""Files that hide a module of Python or of the environment, such as a student's random.py or keras.py."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Collection, Iterator
from importlib.machinery import PathFinder
from types import TracebackType

from labs.run.errors import ERROR_PREFIX, LabError
from labs.run.text import one_line

HARMLESS = {"test", "tests", "docs", "example", "examples", "benchmarks", "setup", "labs"}
"""Names of folders that nothing imports from the environment; the kit's clone may be on the path."""
MATCHED = {"tensorflow", "keras", "horovod", "numpy"}
"""Packages that only work with each other's versions."""


def refuse_standard() -> None:
    """End this process if a file hides one of Python's own modules: importing the kit would end in a traceback."""
    for name, file in _hiding(sys.stdlib_module_names - {*sys.builtin_module_names, *HARMLESS}):
        if name not in sys.modules or getattr(sys.modules[name], "__file__", None) == file:
            sys.exit(f"{ERROR_PREFIX}{_explain(file, f'Python module {name}')}")


def refuse_packages() -> None:
    """Refuse files that hide a package of the environment.

    Raises:
        LabError: A file hides a package; the message names it. A complete installation on PYTHONPATH may hide packages,
            except those of MATCHED.
    """
    installed = {entry.partition(".")[0] for folder in site.getsitepackages() for entry in _entries(folder)}
    for name, file in _hiding(installed - HARMLESS):
        if name in MATCHED or not any(entry.endswith(".dist-info") for entry in _entries(_folder(file))):
            raise LabError(_explain(file, f"environment's {name}"))


def _hiding(names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each of these modules that a file hides, with the file: it is found before Python's own folder."""
    standard = os.path.dirname(os.__file__)
    for folder in sys.path[: sys.path.index(standard)] if standard in sys.path else []:
        if folder not in site.getsitepackages():
            for name in sorted({entry.partition(".")[0] for entry in _entries(folder)}.intersection(names)):
                spec = PathFinder.find_spec(name, [folder or "."])
                if spec and spec.origin:
                    yield name, os.path.abspath(spec.origin)


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    except OSError:
        return []


def _folder(file: str) -> str:
    """Return the folder of the module path in which a module lies."""
    return os.path.dirname(file.removesuffix("/__init__.py"))


def _explain(file: str, hidden: str) -> str:
    file = file.removesuffix("/__init__.py")
    on_path = os.path.dirname(file) in os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return f"{file} hides the {hidden}; {'unset PYTHONPATH' if on_path else 'rename it'}"


def show(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    """Print a LabError in one line, and any other exception with its traceback; the kit's `sys.excepthook`.

    If a file hides a package of the environment, any error may come from it: it is named instead.
    """
    try:
        if issubclass(kind, Exception) and not issubclass(kind, LabError):
            refuse_packages()
    except LabError as cause:
        problem = cause
    if isinstance(problem, LabError):
        print(f"{ERROR_PREFIX}{one_line(problem)}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, problem, trace)
