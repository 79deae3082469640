"""Elastic launches: horovodrun with a host file that may change, on the loopback network alone.

    python -m labs.launch.elastic_hosts --min-np 1 ... PROGRAM      horovodrun on the loopback network
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shlex import quote

from labs.launch import mpirun
from labs.run import atomic, resources
from labs.run.errors import ERROR_PREFIX, NO_GLOO, LabError
from labs.training.loopback import LEAVING_HOST, listen_on_loopback

OTHERS = "localhost"
COOLDOWN_SECONDS = 2


def horovodrun(workers: int, folder: Path) -> list[str]:
    """Write the host file, and return horovodrun's command line for a number of workers, up to the program.

    Args:
        workers: At least 2; one of them can leave and come back.
        folder: The run's folder.

    Raises:
        LabError: The workers would be on several nodes.
    """
    granted = resources.allocation()
    if granted and granted.nodes > 1:
        raise LabError("the elastic study runs on one node; ask for -N 1, or add --study resume")
    write_hosts(folder, workers)
    return [
        *mpirun.PYTHON, "-m", "labs.launch.elastic_hosts",
        # Horovod: it continues with one worker, and never starts more than were requested.
        "-np", str(workers), "--min-np", "1", "--max-np", str(workers),
        # Horovod: runs the script once a second; when its output changes, the set of workers changes.
        "--host-discovery-script", f"cat {quote(str(folder.absolute() / 'hosts'))}",
        # Horovod: a host on which a worker has failed is excluded, by default forever.
        "--blacklist-cooldown-range", "1", str(COOLDOWN_SECONDS),
        # Horovod: without this it looks for a network that two hosts share, and on one machine waits forever.
        "--network-interfaces", "lo",
        # Horovod: how long the workers wait for a new one, which has to load TensorFlow first.
        "--gloo-timeout-seconds", "300",
    ]


def write_hosts(folder: Path, workers: int) -> None:
    """Write the host file: a line per host, with its number of workers."""
    lines = [f"{OTHERS}:{workers - 1}", f"{LEAVING_HOST}:1"]
    atomic.write_text(folder / "hosts", "\n".join(lines) + "\n")


def lose_host(folder: Path) -> None:
    """Take the leaving worker's host out of the host file."""
    kept = [line for line in _hosts(folder) if not line.startswith(LEAVING_HOST)]
    atomic.write_text(folder / "hosts", "\n".join(kept) + "\n")


def return_host(folder: Path) -> bool:
    """Put the leaving worker's host back into the host file; return whether it was missing."""
    kept = _hosts(folder)
    if any(line.startswith(LEAVING_HOST) for line in kept):
        return False
    atomic.write_text(folder / "hosts", "\n".join([*kept, f"{LEAVING_HOST}:1"]) + "\n")
    return True


def _hosts(folder: Path) -> list[str]:
    return (folder / "hosts").read_text().split()


def main() -> None:
    """Run horovodrun in this process, on the loopback network."""
    listen_on_loopback()
    # Horovod: it prints many lines about a lost worker; the run reports it in one.
    os.environ.setdefault("HOROVOD_LOG_LEVEL", "fatal")
    from horovod.runner.launch import run_commandline

    try:
        run_commandline()
    except ValueError as problem:  # conda-forge's Horovod has no Gloo.
        if "Gloo support is required" not in str(problem):
            raise
        sys.exit(f"{ERROR_PREFIX}{NO_GLOO}, which elastic training needs; `labs check` says how to build one")


if __name__ == "__main__":
    main()
