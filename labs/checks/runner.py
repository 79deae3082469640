"""`labs check`: one line for each check, as it comes, and at the end whether this machine can run the labs."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from labs.checks.findings import Finding, absent, fail, refused
from labs.run.errors import LabError

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
"""Where each is, in this order: what takes its time comes last. Each is imported when it is due, so that the first line
comes at once, and a package that is missing is a line and not the end."""
NEEDS = {
    "packages": ("python",),
    "horovod": ("tensorflow", "mpi"),
    "nccl": ("tensorflow", "horovod"),
    "proof": ("python", "keras", "mpi", "tensorflow", "horovod"),
}
"""What fails for another check's reason is not tried."""
WAITS = {
    "tensorflow": "loading, with Horovod: 5 s, minutes from a cold disk",
    "proof": "two workers: 15 s, minutes on a busy machine",
}
REPORT = "make env; if the line stays, report it: no check knows this"
COLOURS = {"ok": 32, "absent": 90, "warn": 33, "fail": 31}


def main(only: Sequence[str], quick: bool, as_json: bool) -> int:
    """Print what the checks find and return the exit status: 1 if something breaks the labs.

    Args:
        only: Names of checks; all, if empty.
        quick: Leave out the proof.
        as_json: A JSON object for each line.

    Raises:
        LabError: No check is called so.
    """
    if unknown := [name for name in only if name not in CHECKS]:
        raise LabError(f"no check is called {unknown[0]!r}; there are: {', '.join(CHECKS)}")
    names = [name for name in CHECKS if (name in only if only else not (quick and name == "proof"))]
    failed: list[str] = []
    for name in names:
        with _waiting(name):
            found = _look(name, failed)
        for each in found:
            print(json.dumps(dataclasses.asdict(each)) if as_json else _line(each), flush=True)
            failed += [name] if each.state == "fail" else []
    if not (only or as_json):
        print(_verdict(failed, quick))
    return int(bool(failed))


def _look(name: str, failed: Sequence[str]) -> list[Finding]:
    """Do one check; whatever goes wrong in it is what it found."""
    module, _, function = CHECKS[name].partition(".")
    cause = next((need for need in NEEDS.get(name, ()) if need in failed), None)
    try:
        found = _not_tried(cause) if cause else getattr(importlib.import_module(f"labs.checks.{module}"), function)()
    except LabError as error:
        found = refused(error)
    except Exception as problem:
        lacks = isinstance(problem, ImportError) and "packages" in failed
        found = _not_tried("packages") if lacks else fail(f"{type(problem).__name__}: {problem}", REPORT)
    lines = found if isinstance(found, list) else [found]
    return [dataclasses.replace(each, name=each.name or name) for each in lines]


def _not_tried(cause: str) -> Finding:
    return absent(f"not tried, since {cause} failed")


def _line(found: Finding) -> str:
    state = f"{found.state:6}"
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        state = f"\033[{COLOURS[found.state]}m{state}\033[0m"
    return f"{state}  {found.name:10}  {found.found}" + f" -> {found.cure}" * bool(found.cure)


def _verdict(failed: Sequence[str], quick: bool) -> str:
    if failed:
        return f"this machine cannot run the labs yet: {', '.join(dict.fromkeys(failed))}"
    return "this machine can run the labs" + ", as far as one sees without the proof" * quick


@contextlib.contextmanager
def _waiting(name: str) -> Iterator[None]:
    """On a terminal, say what takes so long, and for how long it has, while the block runs."""
    if name not in WAITS or not sys.stderr.isatty():
        yield
        return
    began, done = time.monotonic(), threading.Event()

    def tick() -> None:
        while not done.wait(0.2):
            told = f"\r...     {name:10}  {WAITS[name]} ({time.monotonic() - began:.0f} s)"
            print(told, end="", file=sys.stderr, flush=True)

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()
        print("\r\033[K", end="", file=sys.stderr, flush=True)
