"""Check whether this machine can run the labs; names a cure for each problem."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.run import environment, paths
from labs.run import slurm as slurm_commands
from labs.run.environment import install, pins, version
from labs.run.errors import CURE_SEPARATOR, LabError
from labs.run.paths import ROOT, format_path

if TYPE_CHECKING:
    from labs.launch.supervisor import Outcome

NEEDS = {"packages": "python", "slurm": "packages", "tensorflow": "packages", "horovod": "tensorflow",
         "gpus": "horovod", "proof": "horovod"}
"""A check is skipped if another one has failed or was skipped: it would fail for the same reason."""
NEEDED_MB, SHARED_MB = 100, 32
"""The space for checkpoints and curves of a demo, and in /dev/shm, through which two workers exchange gradients."""
ENDS: dict[int, str] = {signal.SIGILL: "this CPU lacks AVX, which TensorFlow's wheels need: use another machine",
                        signal.SIGKILL: "the machine ran out of memory: end other programs"}
PROBE = """
import json, time
began = time.monotonic()
import tensorflow as tf
print(json.dumps({"tensorflow": tf.__version__, "keras": tf.keras.__version__, "seconds": time.monotonic() - began,
                  "gpus": len(tf.config.list_physical_devices("GPU"))}), flush=True)
import horovod, horovod.tensorflow as hvd, horovod_keras3
from horovod.runner.common.util import secret
print(json.dumps({"horovod": horovod.__version__, "mpi": hvd.mpi_built(), "gloo": hvd.gloo_built(),
                  "nccl": bool(hvd.nccl_built()), "safe": hasattr(secret, "launch_key")}))
"""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of `labs check`."""

    state: str
    """"ok", "absent" (not here, and not needed), "warn" (slows a run or falsifies it) or "fail" (breaks the labs)."""
    message: str
    cure: str = ""
    name: str = ""
    """The subject of the line if it is not the check itself: a variable, a folder."""


ok, absent, warn, fail = (functools.partial(Finding, state) for state in ("ok", "absent", "warn", "fail"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs check`."""
    parser.description = (
        "Check whether this machine can run the labs. Prints a line for each check: ok, or a cause and its cure. "
        "Something that a laptop may lack, such as a GPU, is reported as absent, not as an error. The exit code is 1 "
        "if a check fails.")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", choices=list(CHECKS),
                        help="run this check alone; can be repeated: " + ", ".join(CHECKS))


def main(args: argparse.Namespace) -> int:
    """Run the checks, print their findings, and return the exit code: 1 if something breaks the labs."""
    failed, broken = [], set[str]()
    for name in args.only or CHECKS:
        findings = _run(name, broken)
        failed += [name] * any(each.state == "fail" for each in findings)
        for each in findings:
            cure = f" -> {each.cure}" * bool(each.cure)
            print(f"{each.state:6}  {each.name:10}  {each.message}{cure}", flush=True)
    if not args.only:
        print(f"this machine cannot run the labs yet: {', '.join(failed)}" if failed
              else "this machine can run the labs")
    return int(bool(failed))


def _run(name: str, broken: set[str]) -> list[Finding]:
    """Run one check; an error in it is its finding. Add it to `broken` if it fails or depends on one that has."""
    needed = NEEDS.get(name)
    try:
        result = absent(f"skipped, because {needed} failed") if needed in broken else CHECKS[name]()
    except LabError as error:
        cause, _, cure = str(error).partition(CURE_SEPARATOR)
        result = fail(cause, cure)
    except Exception as problem:
        result = fail(f"{type(problem).__name__}: {problem}",
                      "make env; if that does not help, report it: no check covers this problem")
    findings = result if isinstance(result, list) else [result]
    if needed in broken or any(each.state == "fail" for each in findings):
        broken.add(name)
    return [dataclasses.replace(each, name=each.name or name) for each in findings]


def python() -> Finding:
    """Check the interpreter's version."""
    here = ".".join(map(str, sys.version_info[:3]))
    if not (3, 11, 4) <= sys.version_info[:3] < (3, 14):
        return fail(f"{sys.executable} is {here}; the labs need 3.11.4 to 3.13", "make env PYTHON=/path/to/python3.13")
    return ok(f"{here} in {format_path(Path(sys.prefix))}")


def packages() -> Finding:
    """Check the packages that the labs import, except TensorFlow and Horovod, which have their own checks."""
    import tomllib

    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    versions = {name: version(name) for name in [re.findall(r"[\w-]+", line)[0] for line in lines
                                                 if not line.startswith("tensorflow")]}
    if missing := [name for name, known in versions.items() if known is None]:
        return fail(f"not installed: {', '.join(missing)}", install(missing[0]))
    environment.refuse_keras()
    others = [name for name in [*versions, "keras"] if version(name) != pins().get(name, version(name))]
    if others:
        return warn(", ".join(f"{name} {version(name)} (tested with {pins()[name]})" for name in others),
                    install(others[0]))
    return ok(f"{len(versions)}, all at their pins" if pins() else f"{len(versions)}, all installed")


def tensorflow() -> Finding:
    """Compare TensorFlow's version with the one that the labs are tested with, and import it in a separate process."""
    environment.refuse_tensorflow()
    facts, tested = _probe(), environment.tested()["tensorflow"]
    if "tensorflow" not in facts:
        return _not_loaded("tensorflow")
    loaded = f"{facts['tensorflow']} with Keras {facts['keras']}, loaded in {facts['seconds']:.0f} s"
    if version("tensorflow") != tested:
        return warn(f"{loaded}; the labs are tested with {tested}", "docs/setup.md")
    return ok(loaded)


def horovod() -> Finding:
    """Compare the installed TensorFlow with the one that Horovod was built for, and import Horovod."""
    environment.refuse_horovod()
    facts = _probe()
    if "horovod" not in facts:
        return _not_loaded("horovod")
    if not facts["mpi"]:
        return fail("it was built without MPI, which starts the workers", install("horovod"))
    if not facts["gloo"]:
        return warn("it was built without Gloo: lab 12 and --backend gloo cannot run", install("horovod"))
    if not facts["safe"]:  # It lacks setup/horovod.patch.
        return warn("it has CVE-2024-10190 and CVE-2026-31234: on a shared machine, do not use horovodrun, "
                    "and do not run lab 12's elastic study", install("horovod"))
    return ok(f"{facts['horovod']} for TensorFlow {environment.built_for() or facts['tensorflow']}; MPI, Gloo"
              f"{', NCCL' * facts['nccl']}; horovod_keras3 {version('horovod_keras3') or ''}".rstrip())


@functools.cache
def _import() -> Outcome:
    """Import both libraries in a process, which a broken one may kill; it prints facts as JSON, a line for each."""
    from labs.launch import mpirun

    return _output(sys.executable, "-P", "-c", PROBE, seconds=180, env=mpirun.environment())


def _probe() -> dict[str, Any]:
    """Return what both libraries report."""
    lines = [json.loads(line) for line in _import().out.splitlines() if line.startswith("{")]
    return {name: value for line in lines for name, value in line.items()}


def _output(*command: str, seconds: float = 30, env: Mapping[str, str] | None = None) -> Outcome:
    """Run a program, and return its output and how it ended."""
    from labs.launch.supervisor import complete  # Here: packages may be missing.

    return complete(command, seconds, env)


def _not_loaded(name: str) -> Finding:
    """Return why a library did not load, with the environment variable that may be the reason."""
    library_path = "unset LD_LIBRARY_PATH" * bool(os.environ.get("LD_LIBRARY_PATH"))
    cure = ENDS.get(-(_import().code or 0)) or _harmful("TF_", "KERAS_", "PYTHON") or library_path or install(name)
    return fail(f"it does not load: {_import().cause}", cure)


def variables() -> list[Finding]:
    """Return a finding for each variable that breaks a run or falsifies it."""
    from labs.launch import mpirun

    findings = [Finding(rule.state, f"={value} {rule.cause}", f"unset {rule.name}", rule.name)
                for rule, value in environment.harmful()]
    left = sorted(name for name in os.environ if mpirun.INSIDE.match(name))
    if left and not ("SLURM_JOB_ID" in os.environ and all(name.startswith("PMIX_") for name in left)):  # Set by Slurm.
        findings.append(fail("is left over from inside a run: a notebook would wait for that run's other workers",
                             f"unset {' '.join(left)}", left[0]))
    return findings or [ok("none is known to break or slow down a run")]


def _harmful(*prefixes: str) -> str:
    """Return the command that unsets variables of these prefixes that break a run, or an empty string."""
    return "; ".join(f"unset {rule.name}" for rule, _ in environment.harmful()
                     if rule.state == "fail" and rule.name.startswith(prefixes))


def disk() -> list[Finding]:
    """Check that each folder of a run, or its nearest existing parent, can be written and has space."""
    folders = {"LABS_RESULTS": paths.results_dir(), "LABS_DATA": paths.data_dir(),
               "TMPDIR": Path(tempfile.gettempdir()), "/dev/shm": Path("/dev/shm")}
    cures = {"/dev/shm": "rm what earlier runs have left there; in a container: docker run --shm-size=1g"}
    findings = []
    for name, folder in folders.items():
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        free, needed = shutil.disk_usage(there).free / 1e6, SHARED_MB if name == "/dev/shm" else NEEDED_MB
        cure = cures.get(name, f"export {name}=FOLDER, one that you may write to")
        try:
            with tempfile.TemporaryFile(dir=there) as file:
                file.write(bytes(1 << 20))
        except OSError as error:
            findings.append(fail(f"{format_path(there)} cannot be written: {error.strerror}", cure, name))
            continue
        if free < needed:
            findings.append(fail(f"{free:.0f} MB free for {format_path(folder)}, and a run of two workers needs "
                                 f"{needed}", cure, name))
    return findings or [ok(f"space for a run in {', '.join(format_path(folder) for folder in folders.values())}")]


def gpus() -> Finding:
    """Compare the driver's GPUs with TensorFlow's, and check whether Horovod sends gradients directly between them."""
    import pynvml

    from labs.launch import mpirun

    try:
        pynvml.nvmlInit()
        present = pynvml.nvmlDeviceGetCount()
        names = {pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(number)) for number in range(present)}
    except pynvml.NVMLError_LibraryNotFound:
        return absent("no NVIDIA driver; the labs run on the CPU")
    except pynvml.NVMLError as error:
        return fail(f"the GPUs' driver does not work: {error}", "ask the machine's administrator to run nvidia-smi")
    if not mpirun.visible_gpus():
        return warn(f"CUDA_VISIBLE_DEVICES hides all {present}", "unset CUDA_VISIBLE_DEVICES") if present else absent(
            "none; the labs run on the CPU")
    if not _probe().get("gpus"):
        return fail("TensorFlow sees none of the GPUs: a CUDA library is missing or not found, or the driver is older "
                    "than 525.60", "make horovod; if that does not help: docs/setup.md")
    if not _probe().get("nccl"):
        return warn("Horovod was built without NCCL: gradients go from GPU to GPU through host memory", "make horovod")
    return ok(f"{mpirun.visible_gpus()} of {present}: {', '.join(sorted(names))}; NCCL is built into Horovod")


def slurm() -> Finding:
    """Check Slurm's controller, and the partition that jobs go to."""
    if shutil.which("sinfo") is None:
        return absent("not on this machine")
    try:
        rows = slurm_commands.rows("sinfo", "--noheader", "--format=%R|%P|%a|%T")
    except slurm_commands.NoSlurmError:
        if os.environ.get("SLURM_CONF"):
            raise
        return absent("its programs are installed, but no cluster is configured (slurm.conf)")
    up = [name for name, _, available, state in rows
          if available == "up" and not re.match(r"down|drain|fail|maint|unk|.*\*", state)]
    default = next((name for name, starred, *_ in rows if starred.endswith("*")), None)
    chosen, listed = os.environ.get("SBATCH_PARTITION") or default, ", ".join(dict.fromkeys(row[1] for row in rows))
    cure = f"export SBATCH_PARTITION={up[0]}" if up else "tell the cluster's administrator"
    if chosen is None:
        return warn(f"no partition is the default, so sbatch needs a name; there are: {listed}", cure)
    if chosen not in up:
        return fail(f"partition {chosen}, where jobs would go, does not exist or has no node that is up; there are: "
                    f"{listed}", cure)
    return ok(f"the controller answers; partitions: {listed}")


def proof() -> Finding:
    """Run setup/proof.py on two workers, started as `labs run` starts them: they take a step together."""
    from labs.launch import failure, mpirun

    env = mpirun.environment()
    if mpirun.visible_gpus() < 2:
        env["CUDA_VISIBLE_DEVICES"] = ""  # NCCL refuses two workers on one GPU.
    outcome = _output(*mpirun.command(2), sys.executable, str(ROOT / "setup/proof.py"), seconds=300, env=env)
    verdict = failure.proof_verdict(outcome.out)
    if outcome.code == 0:
        return ok(verdict)
    cure = _harmful("HOROVOD_", "OMPI_", "PYTHON", "TF_", "KERAS_") or install("horovod")
    return fail(verdict or f"two workers could not complete a training step: {outcome.cause}", cure)


CHECKS: dict[str, Callable[[], Finding | list[Finding]]] = {
    check.__name__: check
    for check in (python, packages, variables, disk, slurm, tensorflow, horovod, gpus, proof)}
"""The checks in the order of their lines: slow ones come last."""
