"""Check whether this machine can run the labs; names a cure for each problem."""

import argparse
import contextlib
import functools
import json
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from labs.run import environment, paths, resources
from labs.run import slurm as slurm_commands
from labs.run.errors import LabError, proof_verdict
from labs.run.paths import ROOT, format_path

ESSENTIAL = ("packages", "tensorflow", "horovod")
"""If one of these fails, the checks after it would fail for the same reason."""
NEEDED_MB, SHARED_MB = 100, 32  # For a demo's files, and for /dev/shm, through which workers exchange gradients.
PROBE = """
import json
import tensorflow as tf
print(json.dumps({"tensorflow": tf.__version__, "keras": tf.keras.__version__,
                  "gpus": len(tf.config.list_physical_devices("GPU"))}), flush=True)
import horovod, horovod.tensorflow as hvd, horovod_keras3
from horovod.runner.common.util import secret
print(json.dumps({"horovod": horovod.__version__, "mpi": hvd.mpi_built(), "gloo": hvd.gloo_built(),
                  "nccl": bool(hvd.nccl_built()), "safe": hasattr(secret, "launch_key")}))
"""


def version(name: str) -> str | None:
    """Return the version of an installed package, or None."""
    for each in ("tensorflow", "tensorflow-cpu") if name == "tensorflow" else (name,):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(each)
    return None


@functools.cache
def tested() -> dict[str, str]:
    """Return the versions of all packages with which the labs are tested."""
    return dict(line.split("==") for line in (ROOT / "setup" / "constraints.txt").read_text().split())


def pins() -> dict[str, str]:
    """Return the versions that this environment should have; none beside another TensorFlow (a container, a site)."""
    series = tested()["tensorflow"].rpartition(".")[0] + "."
    return tested() if (version("tensorflow") or series).startswith(series) else {}


def install(name: str) -> str:
    """Return the command that installs a package: `make env`, or pip where another tool made the environment."""
    if Path(sys.prefix).name == ".venv" or any(Path(sys.prefix).glob(".ready-*-*")):
        return "make env"
    return "make horovod" if name.startswith("horovod") else f"pip install -c setup/constraints.txt {name}"


class Finding(NamedTuple):
    """One line of `labs check`; "absent" is not here and not needed, "warn" slows a run or falsifies it."""

    state: str
    message: str
    cure: str = ""


ok, absent, warn, fail = (functools.partial(Finding, state) for state in ("ok", "absent", "warn", "fail"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs check`."""
    parser.description = ("Check whether this machine can run the labs. Prints a line for each check: ok, or a cause "
                          "and its cure. The exit code is 1 if a check fails.")
    parser.add_argument("--only", action="append", metavar="NAME", choices=list(CHECKS),
                        help="run this check alone; can be repeated: " + ", ".join(CHECKS))


def main(args: argparse.Namespace) -> int:
    """Run the checks, print their findings, and return the exit code: 1 if something breaks the labs."""
    failed = list[str]()
    for name in args.only or CHECKS:
        try:
            result = CHECKS[name]()
        except LabError as error:
            cause, _, cure = str(error).partition("; ")
            result = fail(cause, cure)
        findings = result if isinstance(result, list) else [result]
        failed += [name] * any(each.state == "fail" for each in findings)
        for state, message, cure in findings:
            print(f"{state:6}  {name:10}  {message}{f' -> {cure}' * bool(cure)}", flush=True)
        if name in failed and name in ESSENTIAL:
            break
    if not args.only:
        print(f"this machine cannot run the labs yet: {', '.join(failed)}" if failed
              else "this machine can run the labs")
    return int(bool(failed))


def packages() -> Finding:
    """Check the packages that the labs import, except TensorFlow and Horovod, which have their own checks."""
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.findall(r"[\w-]+", line)[0] for line in lines if not line.startswith("tensorflow")]
    if missing := [name for name in names if version(name) is None]:
        return fail(f"not installed: {', '.join(missing)}", install(missing[0]))
    if others := [name for name in [*names, "keras"] if version(name) != pins().get(name, version(name))]:
        return warn(", ".join(f"{name} {version(name)} (tested with {pins()[name]})" for name in others),
                    install(others[0]))
    here = ".".join(map(str, sys.version_info[:3]))
    return ok(f"{len(names)} for Python {here}, all installed in {format_path(Path(sys.prefix))}")


def tensorflow() -> Finding:
    """Compare TensorFlow's version with the one that the labs are tested with, and import it in a separate process."""
    (facts, cause), pin = _import(), tested()["tensorflow"]
    if "tensorflow" not in facts:
        return _explain(cause, "tensorflow")
    if version("tensorflow") != pin:
        return warn(f"{facts['tensorflow']}; the labs are tested with {pin}", "docs/setup.md")
    return ok(f"{facts['tensorflow']} with Keras {facts['keras']}")


def horovod() -> Finding:
    """Import Horovod, which refuses a TensorFlow for which it was not built, and look at how it was built."""
    if version("horovod") != (pin := tested()["horovod"]):
        return fail(f"the labs need Horovod {pin}, and {version('horovod') or 'none'} is installed", install("horovod"))
    facts, cause = _import()
    if "horovod" not in facts:
        return _explain(cause, "horovod")
    if not facts["mpi"]:
        return fail("it was built without MPI, which starts the workers", install("horovod"))
    if not facts["gloo"]:
        return warn("it was built without Gloo: lab 12 and --backend gloo cannot run", install("horovod"))
    if not facts["safe"]:  # It lacks setup/horovod.patch.
        return warn("it has CVE-2024-10190 and CVE-2026-31234: on a shared machine, do not use horovodrun, "
                    "and do not run lab 12's elastic study", install("horovod"))
    return ok(f"{facts['horovod']} for TensorFlow {facts['tensorflow']}; MPI, Gloo{', NCCL' * facts['nccl']}")


@functools.cache
def _import() -> tuple[dict[str, Any], str]:
    """Import both libraries in a process, which a broken one may kill; return what they report, and why it failed."""
    from labs.run import mpirun, supervisor  # Here: packages may be missing.

    done = supervisor.complete([sys.executable, "-P", "-c", PROBE], 180, mpirun.environment())
    lines = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
    return {name: value for line in lines for name, value in line.items()}, done.cause


def _explain(cause: str, name: str) -> Finding:
    """Return why a library did not load, with the environment variable that may be the reason."""
    library_path = "unset LD_LIBRARY_PATH" * bool(os.environ.get("LD_LIBRARY_PATH"))
    return fail(f"it does not load: {cause}", _unset() or library_path or install(name))


def variables() -> list[Finding]:
    """Return a finding for each variable that breaks a run or falsifies it."""
    return [fail(f"{name}{cause}", f"unset {name}") for name, cause in environment.harmful().items()] or [
        ok("none is known to break or falsify a run")]


def _unset() -> str:
    """Return the command that unsets the variables that break a run, or an empty string."""
    return "; ".join(f"unset {name}" for name in environment.harmful())


def disk() -> list[Finding]:
    """Check that each folder of a run, or its nearest existing parent, can be written and has space."""
    folders = {"LABS_RESULTS": paths.results_dir(), "LABS_DATA": paths.data_dir(),
               "TMPDIR": Path(tempfile.gettempdir()), "/dev/shm": Path("/dev/shm")}
    findings = []
    for name, folder in folders.items():
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        free, needed = shutil.disk_usage(there).free / 1e6, SHARED_MB if name == "/dev/shm" else NEEDED_MB
        if free < needed or not os.access(there, os.W_OK):
            cure = "docker run --shm-size=1g" if name == "/dev/shm" else f"export {name}=FOLDER"
            findings.append(fail(f"{format_path(folder)} cannot be written, or has less than {needed} MB free", cure))
    return findings or [ok(f"space for a run in {', '.join(format_path(folder) for folder in folders.values())}")]


def gpus() -> Finding:
    """Compare the driver's GPUs with TensorFlow's, and check whether Horovod sends gradients directly between them."""
    import pynvml

    try:
        pynvml.nvmlInit()
        present = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError_LibraryNotFound:
        return absent("no NVIDIA driver; the labs run on the CPU")
    except pynvml.NVMLError as error:
        return fail(f"the GPUs' driver does not work: {error}", "ask the machine's administrator to run nvidia-smi")
    if not (visible := len(resources.gpus())):
        return absent(f"CUDA_VISIBLE_DEVICES hides all {present}; the labs run on the CPU")
    facts, _ = _import()
    if not facts.get("gpus"):
        return fail("TensorFlow sees none of the GPUs: a CUDA library is missing, or the driver is too old",
                    "make horovod; if that does not help: docs/setup.md")
    if not facts.get("nccl"):
        return warn("Horovod was built without NCCL: gradients go from GPU to GPU through host memory", "make horovod")
    return ok(f"{visible} of {present} can be used; NCCL is built into Horovod")


def slurm() -> Finding:
    """Check Slurm's controller, and list its partitions."""
    if shutil.which("sinfo") is None:
        return absent("not on this machine")
    try:
        rows = slurm_commands.rows("sinfo", "--noheader", "--summarize", "--format=%P|%a")
    except slurm_commands.NoSlurmError:
        return absent("its programs are installed, but no cluster is configured (slurm.conf)")
    return ok(f"the controller answers; partitions: {', '.join(f'{name} ({state})' for name, state in rows)}")


def proof() -> Finding:
    """Run setup/proof.py on two workers, started as `labs run` starts them: they take a step together."""
    from labs.run import mpirun, supervisor

    env = mpirun.environment()
    if len(resources.gpus()) < 2:
        env["CUDA_VISIBLE_DEVICES"] = ""  # NCCL refuses two workers on one GPU.
    outcome = supervisor.complete([*mpirun.command(2), sys.executable, str(ROOT / "setup/proof.py")], 300, env)
    verdict = proof_verdict(outcome.out)
    if verdict and outcome.code == 0:
        return ok(verdict)
    return fail(verdict or f"two workers could not complete a training step: {outcome.cause}",
                _unset() or install("horovod"))


CHECKS: dict[str, Callable[[], Finding | list[Finding]]] = {
    check.__name__: check
    for check in (packages, variables, disk, slurm, tensorflow, horovod, gpus, proof)}
"""The checks in the order of their lines: slow ones come last."""
