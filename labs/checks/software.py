"""Python, the packages, TensorFlow, Keras, Horovod and MPI: there, of the right version, and made for each other."""

from __future__ import annotations

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
from labs.run.paths import ROOT, shown

if TYPE_CHECKING:
    from labs.launch.supervisor import Outcome

LOADING_SECONDS = 180
"""Four on an idle machine; a cold network disk takes minutes."""
WHY = {
    "tensorflow": "Horovod's build and the labs stand on {pin}",
    "keras": "TensorFlow 2.15 needs {pin}, and from Keras 3 on Horovod averages no gradients and says nothing",
    "horovod": "the labs stand on {pin}",
}
ENDS: dict[int, str] = {
    signal.SIGILL: "this CPU lacks AVX, which TensorFlow's wheels need: take another machine",
    signal.SIGKILL: "the machine ran out of memory: end other programs",
}


def python() -> Finding:
    """Look at the interpreter, and whether its environment was moved since it was made."""
    version, prefix = ".".join(map(str, sys.version_info[:3])), Path(sys.prefix)
    if not (3, 11, 4) <= sys.version_info[:3] < (3, 12):
        return fail(f"{sys.executable} is {version}; TensorFlow 2.15 needs 3.11, from 3.11.4 on",
                    "make env PYTHON=/path/to/python3.11")
    # `make env` leaves a stamp that names the folder it was made in; a link to that folder is no move.
    lies_in = prefix.resolve().parent
    made_in = next((Path(stamp.read_text()) for stamp in prefix.glob(".ready-*")), lies_in)
    if made_in.resolve() != lies_in:
        return fail(f"the environment {prefix} was made in {made_in}, and does not survive a move", "make env")
    return ok(f"{version} in {shown(prefix)}")


def packages() -> Finding:
    """Look at what the labs import beside TensorFlow, Keras and Horovod, which have lines of their own."""
    import tomllib

    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.findall(r"[\w-]+", line)[0] for line in lines if not line.startswith("tensorflow")]
    there = {name: _version(name) for name in names}
    if missing := [name for name, version in there.items() if version is None]:
        return fail(f"not installed: {', '.join(missing)}", install(missing[0]))
    others = [name for name in names if there[name] != _pins()[name]]
    told = ", ".join(f"{name} {there[name]} (tested with {_pins()[name]})" for name in others)
    if "numpy" in others and not str(there["numpy"]).startswith("1."):
        return fail(f"numpy is {there['numpy']}, and TensorFlow 2.15 was compiled for numpy 1", _cure("numpy"))
    return warn(told, _cure(others[0])) if others else ok(f"{len(names)}, all at their pins")


def keras() -> Finding:
    """Look at Keras' generation and at its own settings."""
    if wrong := _wrong("keras"):
        return wrong
    settings = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "keras.json"
    try:
        told = json.loads(settings.read_text())
    except (OSError, ValueError):
        told = {}
    for name, value in {"image_data_format": "channels_last", "floatx": "float32"}.items():
        if told.get(name, value) != value:
            return fail(f"{settings} sets {name} to {told[name]}; the labs' models want {value}", f"rm {settings}")
    return ok(f"{_version('keras')}, whose gradients Horovod averages")


def tensorflow() -> Finding:
    """Load TensorFlow in a process of its own."""
    if wrong := _wrong("tensorflow"):
        return wrong
    facts, outcome = loading()
    if "tensorflow" not in facts:
        return _not_loaded("tensorflow", outcome)
    return ok(f"{facts['tensorflow']}, loaded in {facts['seconds']:.0f} s")


def horovod() -> Finding:
    """Compare Horovod with the TensorFlow and the MPI that it was built for, and load it."""
    if wrong := _wrong("horovod"):
        return wrong
    built_for, here = _built_for(), _version("tensorflow")
    if built_for not in (None, here):
        return fail(f"it was built for TensorFlow {built_for}, and {here} is here", install("horovod"))
    facts, outcome = loading()
    if "horovod" not in facts:
        return _not_loaded("horovod", outcome)
    if not facts["mpi"]:
        return fail("it was built without MPI, which starts the workers", install("horovod"))
    launcher = _number(_mpirun()[1].out)
    if launcher != _number(facts["library"]):
        return fail(f"it loads {facts['library'].split(',')[0]}, and mpirun is {launcher}: each worker would be alone",
                    variables.without("LD_LIBRARY_PATH") or install("horovod"))
    if not facts["gloo"]:
        return warn("it was built without Gloo: lab 12 and --backend gloo cannot run", install("horovod"))
    return ok(f"{facts['horovod']} for TensorFlow {built_for or here}; MPI, Gloo{', NCCL' * facts['nccl']}")


def mpi() -> Finding:
    """Look for mpirun where `labs run` looks for it, and ask its version."""
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
def loading() -> tuple[dict[str, Any], Outcome]:
    """Return what labs/checks/import_probe.py said of both libraries, and how it ended."""
    from labs.launch import mpirun
    from labs.launch.supervisor import complete

    outcome = complete([sys.executable, "-m", "labs.checks.import_probe"], LOADING_SECONDS, mpirun.environment())
    lines = [json.loads(line) for line in outcome.out.splitlines() if line.startswith("{")]
    return {name: value for line in lines for name, value in line.items()}, outcome


def _not_loaded(name: str, outcome: Outcome) -> Finding:
    """Say why a library did not load, and what in the environment may be the reason."""
    cure = ENDS.get(-(outcome.code or 0)) or variables.cure("TF_", "PYTHON") or variables.without("LD_LIBRARY_PATH")
    return fail(f"it does not load: {outcome.cause}", cure or install(name))


def _wrong(name: str) -> Finding | None:
    """Return what is wrong with a package before it is loaded: missing, hidden by another, of another version."""
    version, pin = _version(name), _pins()[name]
    if version is None:
        return fail(f"not installed for {sys.executable}", install(name))
    if _imported_from(name) != _folder(name):
        return fail(f"`import {name}` finds {_imported_from(name)}/{name}, which hides the environment's {version}",
                    _cure(name))
    if version != pin:
        return fail(f"{version} is in {shown(_folder(name))}: {WHY[name].format(pin=pin)}", _cure(name))
    return None


def _version(name: str) -> str | None:
    from importlib import metadata  # Here, since `python` needs none of it and its line is to come at once.

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _folder(name: str) -> Path:
    from importlib import metadata

    return Path(str(metadata.distribution(name).locate_file("")))


def _imported_from(name: str) -> Path | None:
    """Return the folder in which Python finds a package; it is not loaded for that."""
    found = importlib.util.find_spec(name)
    return Path(found.origin).parent.parent if found and found.origin else None


def _built_for() -> str | None:
    """Return the version of TensorFlow that Horovod's build noted down."""
    note = _folder("horovod") / "horovod" / "metadata.json"
    return json.loads(note.read_text()).get("tensorflow") if note.is_file() else None


@functools.cache
def _pins() -> dict[str, str]:
    return dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())


def _cure(name: str) -> str:
    """Return what has Python find the right package: less in its path, or another installation."""
    folder = _imported_from(name) or _folder(name)
    if str(folder) in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        return "unset PYTHONPATH"
    if str(folder) == site.getusersitepackages():
        return "export PYTHONNOUSERSITE=1"
    return "rm -r .venv, then make env" if name == "keras" and not _conda() else install(name)


def install(name: str) -> str:
    """Return what installs a package: `make env`, or in a conda environment what docs/gpu-environment.md says."""
    if not _conda():
        return "make env"
    return "make horovod" if name == "horovod" else f"python -m pip install {name}=={_pins()[name]}"


def _conda() -> bool:
    return Path(sys.prefix, "conda-meta").is_dir()


def _number(text: str) -> str:
    """Return the first version number in a text."""
    found = re.search(r"\d+\.\d+(\.\d+)?", text)
    return found[0] if found else ""
