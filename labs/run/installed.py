"""Installed packages: their versions, and those with which a run cannot start."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import site
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from labs.run.errors import LabError
from labs.run.paths import ROOT, shown

if TYPE_CHECKING:
    from importlib.metadata import Distribution

STACKS = ("setup/constraints.txt", "setup/constraints-classic.txt")
"""The pins of the default stack and of the classic one, with which the labs are tested."""
DISTRIBUTIONS = {"tensorflow": ("tensorflow", "tensorflow-cpu")}
"""Distributions of a package that several provide; all others have the package's name."""


def legacy_keras() -> bool:
    """Return whether TensorFlow loads Keras 2 from the package tf_keras, as in NVIDIA's containers."""
    return os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")


def keras_package() -> str:
    """Return the name of the package that TensorFlow loads as Keras."""
    return "tf_keras" if legacy_keras() else "keras"


def refuse_numpy() -> None:
    """Refuse a numpy for which TensorFlow was not compiled.

    Raises:
        LabError: As all of these functions, it names the cause and the cure.
    """
    numpy = str(version("numpy"))
    if numpy.partition(".")[0] not in ("0", "1") and _series("tensorflow") < (2, 18):
        raise LabError(f"numpy is {numpy}, and TensorFlow {version('tensorflow')} was compiled for numpy 1; "
                       f"{cure('numpy')}")


def refuse_keras() -> None:
    """Refuse a Keras that is missing, hidden, or made for another TensorFlow."""
    name = keras_package()
    _refuse_missing(name)
    here, tensorflow = str(version(name)), version("tensorflow")
    needed = "3" if name == "keras" and _series("tensorflow") >= (2, 16) else _series_text("tensorflow")
    if tensorflow and not here.startswith(f"{needed}."):
        raise LabError(f"{name} {here} is in {shown(_folder(name))}: TensorFlow {tensorflow} needs {name} {needed}; "
                       f"{cure(name)}")


def refuse_tensorflow() -> None:
    """Refuse a TensorFlow that is missing, hidden, or too old."""
    _refuse_missing("tensorflow")
    if _series("tensorflow") < (2, 15):
        raise LabError(f"{version('tensorflow')} is older than 2.15, the oldest TensorFlow that the labs run on; "
                       f"{cure('tensorflow')}")


def refuse_horovod() -> None:
    """Refuse a Horovod that is missing, hidden, of another version, or built for another TensorFlow."""
    _refuse_missing("horovod")
    if version("horovod") != (pin := stacks()[0]["horovod"]):
        raise LabError(f"Horovod {version('horovod')} is in {shown(_folder('horovod'))}: the labs need {pin}; "
                       f"{cure('horovod')}")
    here = version_number(str(version("tensorflow")))
    if built_for() not in (None, here):
        raise LabError(f"Horovod was built for TensorFlow {built_for()}, and {here} is installed; "
                       f"{install('horovod')}")


def _refuse_missing(name: str) -> None:
    """Refuse what keeps Python from importing a package: it is missing, or another one hides it."""
    if version(name) is None:
        remedy = "unset TF_USE_LEGACY_KERAS" if name == "tf_keras" else install(name)
        raise LabError(f"{name} is not installed for {sys.executable}; {remedy}")
    if _imported_from(name) != _folder(name):
        raise LabError(f"`import {name}` finds {_imported_from(name)}/{name}, which hides the environment's "
                       f"{version(name)}; {cure(name)}")


def _distribution(name: str) -> Distribution | None:
    from importlib import metadata  # Here: the check `python` does not need it, and its line must appear at once.

    for each in DISTRIBUTIONS.get(name, (name,)):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.distribution(each)
    return None


def version(name: str) -> str | None:
    """Return the version of an installed package, or None."""
    installed = _distribution(name)
    return installed.version if installed else None


def _folder(name: str) -> Path:
    """Return the folder in which an installed package lies."""
    installed = _distribution(name)
    if installed is None:
        raise LabError(f"{name} is not installed; {install(name)}")
    return Path(str(installed.locate_file("")))


def _series(name: str) -> tuple[int, ...]:
    """Return the first two numbers of a package's version, or of the default stack's if the package is missing."""
    known = version(name) or stacks()[0][name]
    return tuple(int(number) for number in re.findall(r"\d+", known)[:2])


def _series_text(name: str) -> str:
    return ".".join(map(str, _series(name)))


def _imported_from(name: str) -> Path | None:
    """Return the folder in which Python finds a package, without importing it."""
    spec = PathFinder.find_spec(name)  # The kit's own finder would step aside.
    return Path(spec.origin).parent.parent if spec and spec.origin else None


def built_for() -> str | None:
    """Return the version of TensorFlow that Horovod was built for, or None if its build did not record it."""
    note = _folder("horovod") / "horovod" / "metadata.json"
    return json.loads(note.read_text()).get("tensorflow") if note.is_file() else None


@functools.cache
def stacks() -> list[dict[str, str]]:
    """Return the pins of each stack, the default's first."""
    return [dict(line.split("==") for line in (ROOT / name).read_text().split()) for name in STACKS]


@functools.cache
def pins() -> dict[str, str]:
    """Return the pins of the installed stack; none if its TensorFlow is that of neither (a container, a site)."""
    series = _series_text("tensorflow")
    return next((pins for pins in stacks() if pins["tensorflow"].startswith(f"{series}.")), {})


def cure(name: str) -> str:
    """Return the command after which Python finds the right package."""
    folder = _imported_from(name) or _folder(name)
    if str(folder) in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        return "unset PYTHONPATH"
    if str(folder) == site.getusersitepackages():
        return "export PYTHONNOUSERSITE=1"
    return install(name)


def install(name: str) -> str:
    """Return the command that installs a package: `make env`, or pip where another tool made the environment."""
    prefix = Path(sys.prefix)
    if prefix.name == ".venv":
        return "make env"
    if any(prefix.glob(".ready-*-*")):
        return f"make env VENV={shown(prefix)}"
    if name in ("horovod", "horovod_keras3"):
        return "make horovod"
    return f"python -m pip install {name}" + (f"=={pins()[name]}" if name in pins() else "")


def version_number(text: str) -> str:
    """Return the first version number in a text."""
    match = re.search(r"\d+\.\d+(\.\d+)?", text)
    return match[0] if match else ""
