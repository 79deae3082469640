"""Check whether this machine can run the labs; names a cure for each problem."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
from collections.abc import Iterable, Iterator, Sequence

from labs.run import terminal
from labs.run.errors import LabError, quoted
from labs.tools.check.findings import Finding, absent, fail, refused

CHECKS = {
    "python": "software.python",
    "packages": "software.packages",
    "keras": "software.keras",
    "mpi": "software.mpi",
    "variables": "variables.variables",
    "cores": "machine.cores",
    "memory": "machine.memory",
    "shm": "machine.shared_memory",
    "tmp": "storage.temporary",
    "results": "storage.results",
    "data": "storage.data",
    "cache": "storage.cache",
    "datasets": "storage.datasets",
    "slurm": "cluster.slurm",
    "gpus": "machine.gpus",
    "tensorflow": "software.tensorflow",
    "horovod": "software.horovod",
    "nccl": "machine.nccl",
    "proof": "software.proof",
}
"""The checks by name, as module.function, in the order of their lines: slow ones come last. A module is imported when
its check is due, so that the first line appears at once, and a missing package costs a line, not the whole command."""
NEEDS = {
    "packages": ("python",),
    "horovod": ("tensorflow", "mpi"),
    "nccl": ("tensorflow", "horovod"),
    "proof": ("python", "keras", "mpi", "tensorflow", "horovod"),
}
"""A check is not tried if one of these has failed: it would fail for the same reason."""
WAITS = {
    "tensorflow": "loading, with Horovod: 5 s, minutes from a cold disk",
    "proof": "two workers: 15 s, minutes on a busy machine",
}
REPORT = "make env; if that does not help, report it: no check covers this problem"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs check`."""
    parser.description = (
        "Check whether this machine can run the labs. Prints a line for each check: ok, or a cause and its cure. "
        "Something that a laptop may lack, such as a GPU, is reported as absent, not as an error. The exit code is 1 "
        "if a check fails.")
    parser.add_argument("--quick", action="store_true", help="skip the last check, in which two workers train a step")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="run this check alone; can be repeated: " + ", ".join(CHECKS))
    parser.add_argument("--json", action="store_true", help="print a JSON object for each check")


def main(args: argparse.Namespace) -> int:
    """Run the checks, print their findings, and return the exit code: 1 if something breaks the labs.

    Raises:
        LabError: There is no check of that name.
    """
    if unknown := [name for name in args.only if name not in CHECKS]:
        raise LabError(f"unknown check {quoted(unknown[0])}; there are: {', '.join(CHECKS)}")
    names = args.only or [name for name in CHECKS if not (args.quick and name == "proof")]
    failed: list[str] = []
    for each in findings(sorted(names, key=list(CHECKS).index), failed):
        print(_json(each) if args.json else line(each), flush=True)
    if not (args.only or args.json):
        print(f"this machine cannot run the labs yet: {', '.join(failed)}" if failed else
              "this machine can run the labs" + ", as far as can be seen without the proof" * args.quick)
    return int(bool(failed))


def findings(names: Iterable[str], failed: list[str]) -> Iterator[Finding]:
    """Run checks and yield their findings as they arrive.

    Args:
        names: Names of checks, in the order of CHECKS.
        failed: The names of those that fail are added to it.
    """
    for name in names:
        with terminal.ticking(f"...     {name:10}  {WAITS.get(name, '')}"):
            results = _run(name, failed)
        failed += [name] if any(each.state == "fail" for each in results) else []
        yield from results


def _run(name: str, failed: Sequence[str]) -> list[Finding]:
    """Run one check; an error in it is its finding."""
    module, _, function = CHECKS[name].partition(".")
    cause = next((need for need in NEEDS.get(name, ()) if need in failed), None)
    try:
        if cause:
            result = _not_tried(cause)
        else:
            result = getattr(importlib.import_module(f"labs.tools.check.{module}"), function)()
    except LabError as error:
        result = refused(error)
    except Exception as problem:
        missing = isinstance(problem, ImportError) and "packages" in failed
        result = _not_tried("packages") if missing else fail(f"{type(problem).__name__}: {problem}", REPORT)
    findings = result if isinstance(result, list) else [result]
    return [dataclasses.replace(each, name=each.name or name) for each in findings]


def _not_tried(cause: str) -> Finding:
    return absent(f"skipped, because {cause} failed")


def _json(finding: Finding) -> str:
    """Return a finding as JSON, with the keys that `labs check --json` has always had."""
    return json.dumps({"state": finding.state, "found": finding.message, "cure": finding.cure, "name": finding.name})


def line(finding: Finding) -> str:
    """Return a finding as a line of `labs check`."""
    cure = f" -> {finding.cure}" * bool(finding.cure)
    return terminal.folded(f"{finding.state:6}  {finding.name:10}  {finding.message}{cure}", 20)
