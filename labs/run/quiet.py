"""TensorFlow's import without the log lines that it writes before its log level applies, without unused packages,
without the garbage collector, and without what keras.json changes.

Since 2.18 TensorFlow reports each time that oneDNN is on, before it reads TF_CPP_MIN_LOG_LEVEL. In a notebook these
lines would be the first that a student sees, and from workers they come once per rank.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Collection, Iterator
from importlib.abc import MetaPathFinder

from labs.run import environment

NOISE = re.compile(r"WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR"
                   r"|[IW]\d{4} \d\d:\d\d:\d+\.\d+ .*"  # Abseil's format: level, date, time, thread, file, text.
                   r"|E\d{4} .* Unable to register cu\w+ factory: .*")
"""Whole lines: information, warnings, and a false error of GPU builds (two registrations of the same library)."""


class QuietImport(MetaPathFinder):
    """Imports TensorFlow with filtered standard error, hidden packages and no garbage collector; then steps aside.

    It refuses to import TensorFlow in an environment that breaks a run.

    Args:
        unused: Optional packages to hide from TensorFlow and Keras during the import.
    """

    def __init__(self, unused: Collection[str] = ()):
        self.unused = unused

    def find_spec(self, name, path=None, target=None):
        if name != "tensorflow":
            return None
        with gc_disabled():
            environment.refuse_harmful(horovod=False)  # A trial that a worker starts may have other Horovod settings.
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def load_quietly(module) -> None:
                with filtered_stderr(), hidden(self.unused), gc_disabled():
                    load(module)
                    environment.restore_keras(module.keras.backend)

            spec.loader.exec_module = load_quietly  # type: ignore[method-assign]
        return spec


class _Hidden(MetaPathFinder):
    def __init__(self, packages: Collection[str]):
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        if name in self.packages:
            raise ModuleNotFoundError(f"{name} is hidden while TensorFlow is imported", name=name)


def hide_warnings() -> None:
    """Hide Python's warnings, unless the student asks for them: they are about the code of other packages.

    They may quote a record's text unescaped. The kit itself prints what a student should know.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


@contextlib.contextmanager
def hidden(packages: Collection[str]) -> Iterator[None]:
    """Make imports of these packages fail during the block, unless they are already loaded."""
    finder = _Hidden(packages)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextlib.contextmanager
def gc_disabled() -> Iterator[None]:
    """Turn the garbage collector off during the block, then exempt all objects from later collections.

    Imported modules live as long as the process.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


@contextlib.contextmanager
def filtered_stderr() -> Iterator[None]:
    """Hold back what is written to file descriptor 2, by C code too, and write it at the end without NOISE."""
    try:
        stderr = os.dup(2)
    except OSError:  # Closed, as for a daemon.
        yield
        return
    held = os.memfd_create("labs-stderr")
    os.dup2(held, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.lseek(held, 0, os.SEEK_SET)
        with open(held, errors="replace") as file:
            kept = "".join(line for line in file if not NOISE.fullmatch(line.rstrip("\n")))
        if kept:
            os.write(2, kept.encode())
