"""Elastic launches: horovodrun with a host file that may change, on the loopback network alone. Loads no TensorFlow."""

import os
import sys
from pathlib import Path
from shlex import quote

from labs.run import atomic, resources
from labs.run.errors import LabError

LEAVING_HOST = "127.0.0.1"
"""The host of the worker that leaves. A host that loses one worker loses all of them, so this one has its own name."""


def horovodrun(workers: int, folder: Path) -> list[str]:
    """Write the host file, and return horovodrun's command line up to the program; one worker can leave and return."""
    granted = resources.allocation()
    if granted and granted.nodes > 1:
        raise LabError("the elastic study runs on one node; ask for -N 1, or add --study resume")
    write_hosts(folder, workers - 1, leaving=True)
    return [
        sys.executable, "-P", "-m", "labs.training.elastic_hosts",
        # Horovod: it continues with one worker, and never starts more than were requested.
        "-np", str(workers), "--min-np", "1", "--max-np", str(workers),
        # Horovod: runs the script once a second; when its output changes, the set of workers changes.
        "--host-discovery-script", f"cat {quote(str(folder.absolute() / 'hosts'))}",
        # Horovod: a host on which a worker has failed is excluded, by default forever.
        "--blacklist-cooldown-range", "1", "2",
        # Horovod: without this it looks for a network that two hosts share, and on one machine waits forever.
        "--network-interfaces", "lo",
        # Horovod: how long the workers wait for a new one, which has to load TensorFlow first.
        "--gloo-timeout-seconds", "300",
    ]


def write_hosts(folder: Path, others: int, leaving: bool) -> None:
    """Write the host file: the host of the others with their number, and that of the worker that leaves, or not."""
    atomic.write_text(folder / "hosts", f"localhost:{others}\n" + f"{LEAVING_HOST}:1\n" * leaving)


def has_left(folder: Path) -> bool:
    """Return whether the host of the worker that leaves is missing in the host file."""
    return LEAVING_HOST not in (folder / "hosts").read_text()


def is_leaving() -> bool:
    """Return whether this process is the worker that leaves."""
    return os.environ.get("HOROVOD_HOSTNAME") == LEAVING_HOST


def listen_on_loopback() -> None:
    """Bind the servers of horovodrun and of its workers to the loopback interface.

    Horovod 0.28.1 binds them to every interface and, unless patched as the kit's, unpickles what it receives there.
    """
    from horovod.runner.common.util import network as workers
    from horovod.runner.http import http_server
    from horovod.runner.util import network

    def find_port(server_factory):
        server = server_factory(("127.0.0.1", 0))  # Horovod: it would pass ("", port), which is every interface.
        return server, server.socket.getsockname()[1]

    for module in (workers, http_server, network):
        module.find_port = find_port


def main() -> None:
    """Run horovodrun in this process, on the loopback network."""
    listen_on_loopback()
    # Horovod: it prints many lines about a lost worker; the run reports it in one.
    os.environ.setdefault("HOROVOD_LOG_LEVEL", "fatal")
    from horovod.runner.launch import run_commandline

    run_commandline()


if __name__ == "__main__":
    main()
