"""`labs check`: runs the checks, prints a line for each, and reports whether this machine can run the labs."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
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
    "limits": "machine.limits",
    "shm": "machine.shared_memory",
    "loopback": "machine.loopback",
    "tmp": "storage.temporary",
    "results": "storage.results",
    "data": "storage.data",
    "cache": "storage.cache",
    "locks": "storage.locks",
    "datasets": "storage.datasets",
    "slurm": "cluster.slurm",
    "gpus": "machine.gpus",
    "tensorflow": "software.tensorflow",
    "horovod": "software.horovod",
    "nccl": "machine.nccl",
    "proof": "smoke_test.two_workers",
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
COLOURS = {"ok": 32, "absent": 90, "warn": 33, "fail": 31}


def main(only: Sequence[str], quick: bool, as_json: bool) -> int:
    """Run the checks, print their findings, and return the exit status: 1 if something breaks the labs.

    Args:
        only: Names of checks; all if empty.
        quick: Omit the proof.
        as_json: Print each finding as a JSON object.

    Raises:
        LabError: There is no check of that name.
    """
    if unknown := [name for name in only if name not in CHECKS]:
        raise LabError(f"no check is called {quoted(unknown[0])}; there are: {', '.join(CHECKS)}")
    names = [name for name in CHECKS if (name in only if only else not (quick and name == "proof"))]
    failed: list[str] = []
    for each in findings(names, failed):
        print(_json(each) if as_json else line(each), flush=True)
    if not (only or as_json):
        print(_summary(failed, quick))
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
    state = f"{finding.state:6}"
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        state = f"\033[{COLOURS[finding.state]}m{state}\033[0m"
    text = f"{finding.state:6}  {finding.name:10}  {finding.message}" + f" -> {finding.cure}" * bool(finding.cure)
    return state + terminal.folded(text, 20)[6:]


def _summary(failed: Sequence[str], quick: bool) -> str:
    if failed:
        return f"this machine cannot run the labs yet: {', '.join(dict.fromkeys(failed))}"
    return "this machine can run the labs" + ", as far as can be seen without the proof" * quick
