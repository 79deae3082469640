"""Python, packages, TensorFlow, Keras, Horovod and MPI: installed, at the right version, and compatible."""

from __future__ import annotations

import functools
import json
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.run import environment, shadows
from labs.run.environment import cure, install, pins, version, version_number
from labs.run.paths import ROOT, shown
from labs.tools.check import variables
from labs.tools.check.findings import Finding, fail, ok, warn

if TYPE_CHECKING:
    from labs.launch.supervisor import Outcome

PROBE_SECONDS = 180
"""It takes 4 s on an idle machine, minutes from a cold network disk."""
PROOF_SECONDS = 300
"""It takes 10 to 15 s on two idle cores, minutes on busy ones or from a cold disk."""
ENDS: dict[int, str] = {
    signal.SIGILL: "this CPU lacks AVX, which TensorFlow's wheels need: use another machine",
    signal.SIGKILL: "the machine ran out of memory: end other programs",
}


def python() -> Finding:
    """Check the interpreter's version, and whether its environment has been moved."""
    here, prefix = ".".join(map(str, sys.version_info[:3])), Path(sys.prefix)
    if not (3, 11, 4) <= sys.version_info[:3] < (3, 14):
        return fail(f"{sys.executable} is {here}; the labs need 3.11.4 to 3.13",
                    "make env PYTHON=/path/to/python3.13")
    # `make env` writes a stamp with the folder's path; a symbolic link to that folder does not count as a move.
    made_as = next((Path(stamp.read_text().splitlines()[0]) for stamp in prefix.glob(".ready-*-*")), prefix)
    if made_as.resolve() != prefix.resolve():
        return fail(f"the environment {prefix} was made as {made_as}, and does not work after a move", "make env")
    return ok(f"{here} in {shown(prefix)}")


def packages() -> Finding:
    """Check the packages that the labs import, except TensorFlow, Keras and Horovod, which have their own checks."""
    import tomllib

    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.findall(r"[\w-]+", line)[0] for line in lines if not line.startswith("tensorflow")]
    versions = {name: version(name) for name in names}
    if missing := [name for name, known in versions.items() if known is None]:
        return fail(f"not installed: {', '.join(missing)}", install(missing[0]))
    environment.refuse_numpy()
    shadows.refuse_packages()
    others = [name for name in names if versions[name] != pins().get(name, versions[name])]
    different = ", ".join(f"{name} {versions[name]} (tested with {pins()[name]})" for name in others)
    if others:
        return warn(different, cure(others[0]))
    return ok(f"{len(names)}, all at their pins" if pins() else f"{len(names)}, all there")


def keras() -> Finding:
    """Check that the Keras that TensorFlow loads is there, fits it, and has the settings that the labs need."""
    environment.refuse_keras()
    if different := environment.keras_settings():
        file, changes = environment.keras_file(), ", ".join(f"{key} to {value}" for key, value in different.items())
        return warn(f"{file} sets {changes}, which the labs reset", f"rm {file}")
    if version("keras") != pins().get("keras", version("keras")):
        return warn(f"{version('keras')} (tested with {pins()['keras']})", cure("keras"))
    return ok(f"keras {version('keras')}")


def tensorflow() -> Finding:
    """Compare TensorFlow's version with the one that the labs are tested with, and import it in a separate process."""
    environment.refuse_tensorflow()
    tested = environment.tested()["tensorflow"]
    facts, outcome = probe()
    if "tensorflow" not in facts:
        return _not_loaded("tensorflow", outcome)
    loaded = f"{facts['tensorflow']} with Keras {facts['keras']}, loaded in {facts['seconds']:.0f} s"
    if version("tensorflow") != tested:
        return warn(f"{loaded}; the labs are tested with {tested}", "docs/support-matrix.md")
    return ok(loaded)


def horovod() -> Finding:
    """Compare the installed TensorFlow and MPI with those that Horovod was built for, and import Horovod."""
    environment.refuse_horovod()
    facts, outcome = probe()
    if "horovod" not in facts:
        return _not_loaded("horovod", outcome)
    if not facts["mpi"]:
        return fail("it was built without MPI, which starts the workers", install("horovod"))
    launcher = version_number(_mpirun()[1].out)
    if launcher != version_number(facts["library"]):
        return fail(f"it loads {facts['library'].split(',')[0]}, and mpirun is {launcher}: "
                    "each worker would train alone",
                    variables.without("LD_LIBRARY_PATH") or install("horovod"))
    if not facts["gloo"]:
        return warn("it was built without Gloo: lab 12 and --backend gloo cannot run", install("horovod"))
    if not facts["safe"]:  # It lacks setup/horovod.patch.
        return warn("it has CVE-2024-10190 and CVE-2026-31234: on a shared machine, do not start it by `horovodrun`, "
                    "nor lab 12's elastic study", install("horovod"))
    built_for = environment.built_for() or version_number(str(version("tensorflow")))
    layer = f"horovod_keras3 {version('horovod_keras3') or ''}".rstrip()
    return ok(f"{facts['horovod']} for TensorFlow {built_for}; MPI, Gloo{', NCCL' * facts['nccl']}; {layer}")


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
    """Return the facts that labs/tools/check/import_probe.py reports on both libraries, and how it ended."""
    from labs.launch import mpirun
    from labs.launch.supervisor import complete

    outcome = complete([*mpirun.PYTHON, "-m", "labs.tools.check.import_probe"], PROBE_SECONDS, mpirun.environment())
    lines = [json.loads(line) for line in outcome.out.splitlines() if line.startswith("{")]
    return {name: value for line in lines for name, value in line.items()}, outcome


def _not_loaded(name: str, outcome: Outcome) -> Finding:
    """Return why a library did not load, with the environment variable that may be the reason."""
    cure = ENDS.get(-(outcome.code or 0)) or variables.cure("TF_", "KERAS_", "PYTHON")
    return fail(f"it does not load: {outcome.cause}", cure or variables.without("LD_LIBRARY_PATH") or install(name))


def proof() -> Finding:
    """Run setup/proof.py on two workers, started as `labs run` starts them: they take a step together."""
    from labs.launch import capacity, failure, mpirun
    from labs.launch.supervisor import complete

    env = mpirun.environment()
    if capacity.visible_gpus() < 2:
        env["CUDA_VISIBLE_DEVICES"] = ""  # NCCL refuses two workers on one GPU.
    outcome = complete([*mpirun.command(2), sys.executable, ROOT / "setup" / "proof.py"], PROOF_SECONDS, env)
    verdict = failure.proof_verdict(outcome.out)
    if outcome.code == 0:
        return ok(verdict)
    cure = variables.cure("HOROVOD_", "OMPI_", "PYTHON", "TF_", "KERAS_") or install("horovod")
    return fail(verdict or f"two workers could not complete a training step: {outcome.cause}", cure)
