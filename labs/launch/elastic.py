"""Starts workers that may come and go: horovodrun with a host file, closed to all other machines.

    python -m labs.launch.elastic --min-np 1 ... PROGRAM      horovodrun, listening on this machine alone
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shlex import quote

from labs.run import atomic
from labs.run.errors import LabError
from labs.slurm import allocation
from labs.training.loopback import LEAVING_HOST, listen_on_loopback

OTHERS = "localhost"
COOLDOWN_SECONDS = 2


def horovodrun(workers: int, folder: Path) -> list[str]:
    """Return the start of the command line that starts so many workers on this machine, and write their host file.

    Args:
        workers: At least 2; one of them can leave and come back.
        folder: Of the run.

    Raises:
        LabError: The workers would be on several nodes.
    """
    granted = allocation.current()
    if granted and granted.nodes > 1:
        raise LabError("the elastic study runs on one node; ask for -N 1, or add --study resume")
    write_hosts(folder, workers)
    return [
        sys.executable, "-m", "labs.launch.elastic",
        # Horovod: it goes on with one worker, and never with more than were asked for.
        "-np", str(workers), "--min-np", "1", "--max-np", str(workers),
        # Horovod: asked once a second; a changed answer is a changed set of workers.
        "--host-discovery-script", f"cat {quote(str(folder.absolute() / 'hosts'))}",
        # Horovod: a host on which a worker has failed is never used again, unless its exclusion ends.
        "--blacklist-cooldown-range", "1", str(COOLDOWN_SECONDS),
        # Horovod: it would look for a network that two hosts share; on one machine it would wait for ever.
        "--network-interfaces", "lo",
        # Horovod: those who are there wait so long for one who comes, and who has to load TensorFlow first.
        "--gloo-timeout-seconds", "300",
    ]


def write_hosts(folder: Path, workers: int) -> None:
    """Write the host file: one line per host, with the number of workers that it has room for."""
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
    """Be horovodrun."""
    listen_on_loopback()
    # Horovod: to it a lost worker is an error of many lines; here it is told in one.
    os.environ.setdefault("HOROVOD_LOG_LEVEL", "fatal")
    from horovod.runner.launch import run_commandline

    run_commandline()


if __name__ == "__main__":
    main()
