"""The surroundings of a run: environment variables, Keras's settings and installed packages that break it, slow it down
or falsify its results.

`labs check` reports all of them; a run refuses those that break it before it starts.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import site
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.run import shadows, student
from labs.run.errors import LabError
from labs.run.paths import ROOT, check_working_folder, python_path, shown
from labs.run.text import printable

if TYPE_CHECKING:
    from importlib.metadata import Distribution


RELEASE = "RELEASE"
"""The file of a release that holds its commit: `make release` writes it, because a release has no history."""


@dataclass(frozen=True)
class Rule:
    """A variable, and which of its values are harmful."""

    name: str
    state: str
    """"fail": a run refuses it; "warn": only `labs check` reports it."""
    cause: str
    """What it does; follows NAME=value in the line."""
    wrong: Callable[[str], bool]


def _true(value: str) -> bool:
    return value.lower() in ("1", "true", "yes", "on")


RULES = [
    Rule("TF_USE_LEGACY_KERAS", "fail", "makes TensorFlow load Keras 2, and the labs need Keras 3",
         lambda value: value in ("1", "true", "True")),
    Rule("KERAS_BACKEND", "fail", "makes Keras use a backend other than TensorFlow",
         lambda value: value not in ("", "tensorflow")),
    Rule("KERAS_MAX_EPOCHS", "fail", "makes Keras end training early", bool),
    Rule("KERAS_MAX_STEPS_PER_EPOCH", "fail", "makes Keras end an epoch early", bool),
    Rule("PYTHONWARNINGS", "fail", "turns warnings into errors, and TensorFlow warns when it loads",
         lambda value: "error" in value),
    Rule("PYTHONOPTIMIZE", "fail", "removes docstrings, without which TensorFlow does not load",
         lambda value: value.isdigit() and int(value) >= 2),
    Rule("PYTHONDONTWRITEBYTECODE", "warn", "makes every start compile TensorFlow's Python code again, for 12 s", bool),
    Rule("HOROVOD_CPU_OPERATIONS", "fail", "crashes workers that are connected by MPI (some labs have --backend gloo)",
         lambda value: value.lower() == "gloo" and "HOROVOD_RANK" not in os.environ),  # horovodrun sets both.
    Rule("HOROVOD_CYCLE_TIME", "warn", "delays every message by that many milliseconds (Horovod's default: 1)",
         lambda value: bool(re.fullmatch(r"[1-9]\d+(\.\d*)?", value))),
    Rule("HOROVOD_CYCLE_TIME", "fail", "is not a number of milliseconds",
         lambda value: bool(value) and not re.fullmatch(r"[0-9]+(\.[0-9]*)?", value)),
    Rule("HOROVOD_FUSION_THRESHOLD", "fail", "is not a number of bytes",
         lambda value: bool(value) and not re.fullmatch(r"[0-9]+", value)),
    Rule("HOROVOD_TIMELINE", "warn", "makes every run write all its messages into one file (for one run: --timeline)",
         bool),
    Rule("HOROVOD_AUTOTUNE", "warn", "changes Horovod's settings while a run is measured", _true),
    Rule(student.VARIABLE, "fail", "is not a student's id (letters, digits, '-', '_' and '.')",
         lambda value: bool(value) and not student.is_id(value)),
    Rule("HOROVOD_STALL_CHECK_DISABLE", "warn", "lets workers wait forever for one that never comes", _true),
]


def harmful() -> Iterator[tuple[Rule, str]]:
    """Yield each rule that a variable of this process breaks, with the variable's value."""
    for rule in RULES:
        if rule.wrong(value := os.environ.get(rule.name, "")):
            yield rule, value


def refuse_harmful(horovod: bool = True) -> None:
    """Refuse an environment in which a run would end in a traceback or train something else.

    Args:
        horovod: Refuse what breaks Horovod as well.

    Raises:
        LabError: The environment is harmful; the message names the variable, the package or the file, and the cure.
    """
    for rule, value in harmful():
        if rule.state == "fail" and (horovod or not rule.name.startswith("HOROVOD_")):
            raise LabError(f"{rule.name}={value} {rule.cause}; unset {rule.name}")
    check_working_folder()
    shadows.refuse_packages()
    refuse_numpy()
    refuse_tensorflow()
    refuse_keras()
    refuse_keras_settings()
    if horovod:
        refuse_horovod()


RECORDED = re.compile(r"TF_(XLA_FLAGS|DETERMINISTIC_OPS|CUDNN_\w+|(EN|DIS)ABLE_(?!ONEDNN_OPTS)\w+)|XLA_FLAGS"
                      r"|NVIDIA_TF32_OVERRIDE|(ONEDNN|DNNL)_\w+")
"""Variables that may change what TensorFlow computes, or how fast, and that a record shows nowhere else. Other names
that begin with TF_ are Terraform's, and may hold secrets."""


def recorded() -> dict[str, str]:
    """Return the variables of this process that belong in a record."""
    return {name: printable(value) for name, value in sorted(os.environ.items()) if value and RECORDED.fullmatch(name)}


KERAS_DEFAULTS: dict[str, Any] = {"floatx": "float32", "image_data_format": "channels_last", "epsilon": 1e-7}
"""The settings in keras.json that change what a model computes; KERAS_BACKEND overrides the backend."""


def keras_file() -> Path:
    """Return Keras's settings file, found as Keras finds it."""
    home = os.path.expanduser("~")
    default = os.path.join(home if os.access(home, os.W_OK) else "/tmp", ".keras")
    return Path(os.path.expanduser(os.path.join(os.environ.get("KERAS_HOME", default), "keras.json")))


def refuse_keras_settings() -> None:
    """Refuse a settings file of Keras in which Keras itself would find no settings.

    Raises:
        LabError: The file is JSON, but not an object. Keras ignores a file that is not JSON.
    """
    with contextlib.suppress(OSError, ValueError):
        if not isinstance(json.loads(keras_file().read_text()), dict):
            raise LabError(f"{keras_file()} does not hold Keras's settings; rm {keras_file()}")


def restore_keras(backend: Any) -> None:
    """Set Keras's settings to KERAS_DEFAULTS, which the labs' models need.

    Args:
        backend: `tf.keras.backend`.
    """
    for name, value in KERAS_DEFAULTS.items():
        getattr(backend, f"set_{name}")(value)


class HorovodsKerasLayer(MetaPathFinder):
    """Refuses the import of Horovod's own Keras layer, which is written for Keras 2.

    `horovod.keras`, `horovod.tensorflow.keras` and `horovod.tensorflow.DistributedOptimizer` import `horovod._keras`.
    """

    def find_spec(self, name, path=None, target=None):
        if name == "horovod._keras":
            raise LabError("Horovod's own Keras layer never exchanges a gradient on Keras 3; use "
                           "`import horovod_keras3 as hvd`")


def refuse_numpy() -> None:
    """Refuse a numpy for which TensorFlow was not compiled.

    Raises:
        LabError: TensorFlow was compiled for another numpy; the message names the cause and the cure.
    """
    numpy = str(version("numpy"))
    if numpy.partition(".")[0] not in ("0", "1") and _series("tensorflow") < (2, 18):
        raise LabError(f"numpy is {numpy}, and TensorFlow {version('tensorflow')} was compiled for numpy 1; "
                       f"{cure('numpy')}")


def refuse_tensorflow() -> None:
    """Refuse a TensorFlow that is missing, hidden, or too old."""
    _refuse_missing("tensorflow")
    if _series("tensorflow") < (2, 16):
        raise LabError(f"{version('tensorflow')} is older than 2.16, the oldest TensorFlow with Keras 3; "
                       f"{cure('tensorflow')}")


def refuse_keras() -> None:
    """Refuse a Keras that is missing, hidden, or not Keras 3."""
    _refuse_missing("keras")
    if not str(version("keras")).startswith("3."):
        raise LabError(f"keras {version('keras')} is in {shown(_folder('keras'))}: the labs need keras 3; "
                       f"{cure('keras')}")


def refuse_horovod() -> None:
    """Refuse a Horovod that is missing, hidden, of another version, built for another TensorFlow, or without
    horovod_keras3."""
    _refuse_missing("horovod")
    if version("horovod") != (pin := tested()["horovod"]):
        raise LabError(f"Horovod {version('horovod')} is in {shown(_folder('horovod'))}: the labs need {pin}; "
                       f"{cure('horovod')}")
    here = version_number(str(version("tensorflow")))
    if built_for() not in (None, here):
        raise LabError(f"Horovod was built for TensorFlow {built_for()}, and {here} is installed; "
                       f"{install('horovod')}")
    layer = PathFinder.find_spec("horovod_keras3", [*python_path().split(os.pathsep), *sys.path])
    if not (layer and layer.origin):  # The clone's folder of that name has no origin: it is a package without contents.
        raise LabError(f"horovod_keras3 is not installed for {sys.executable}; {install('horovod_keras3')}")


def _refuse_missing(name: str) -> None:
    """Raise LabError if Python cannot import a package: it is missing, or another one hides it."""
    if version(name) is None:
        raise LabError(f"{name} is not installed for {sys.executable}; {install(name)}")
    if _imported_from(name) != _folder(name):
        raise LabError(f"`import {name}` finds {_imported_from(name)}/{name}, which hides the environment's "
                       f"{version(name)}; {cure(name)}")


def _distribution(name: str) -> Distribution | None:
    from importlib import metadata  # Here: the check `python` does not need it, and its line must appear at once.

    for each in ("tensorflow", "tensorflow-cpu") if name == "tensorflow" else (name,):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.distribution(each)
    return None


@functools.cache
def commit() -> str:
    """Return the kit's commit: "release-COMMIT" in an unpacked release, "unknown" if nothing says it."""
    with contextlib.suppress(OSError):
        return (ROOT / RELEASE).read_text().strip()
    git = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        if (ROOT / ".git").exists():  # Otherwise git would look into the folders above.
            return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    return "unknown"


def version(name: str) -> str | None:
    """Return the version of an installed package, or None."""
    installed = _distribution(name)
    return installed.version if installed else None


def _series(name: str) -> tuple[int, ...]:
    """Return the first two numbers of a package's version, or of its pin if the package is missing."""
    known = version(name) or tested()[name]
    return tuple(int(number) for number in re.findall(r"\d+", known)[:2])


def _folder(name: str) -> Path:
    """Return the folder in which an installed package lies."""
    installed = _distribution(name)
    if installed is None:
        raise LabError(f"{name} is not installed; {install(name)}")
    return Path(str(installed.locate_file("")))


def _imported_from(name: str) -> Path | None:
    """Return the folder in which Python finds a package, without importing it."""
    spec = PathFinder.find_spec(name)  # The kit's own finder would step aside.
    return Path(spec.origin).parent.parent if spec and spec.origin else None


def built_for() -> str | None:
    """Return the version of TensorFlow that Horovod was built for, or None if its build did not record it."""
    note = _folder("horovod") / "horovod" / "metadata.json"
    return json.loads(note.read_text()).get("tensorflow") if note.is_file() else None


@functools.cache
def tested() -> dict[str, str]:
    """Return the versions of all packages with which the labs are tested."""
    return dict(line.split("==") for line in (ROOT / "setup" / "constraints.txt").read_text().split())


@functools.cache
def pins() -> dict[str, str]:
    """Return the versions that this environment should have; none beside another TensorFlow (a container, a site)."""
    series = "{}.{}.".format(*_series("tensorflow"))
    return tested() if tested()["tensorflow"].startswith(series) else {}


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
