"""A host of the cluster: namespaces, private /tmp and /dev/shm, host name, hosts file, network interface."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, cast

from labs.run import cluster_state as state
from labs.run.errors import LabError, quoted
from labs.run.paths import ROOT, cache_dir, data_dir, results_dir

TMP = Path("/tmp")


def shared_folders(named: Iterable[Path]) -> list[Path]:
    """Return the folders below /tmp that all hosts must see: the kit's own, and those that the user has named.

    The kit's own are made if they are missing.

    Args:
        named: Folders of the user.

    Raises:
        LabError: One of the user's is not below /tmp.
    """
    named = [path.resolve() for path in named]
    if outside := [path for path in named if TMP not in path.parents]:
        raise LabError(f"--share {quoted(str(outside[0]))} is not below /tmp; name a folder below it, or leave "
                       "--share out: nodes share the file system except /tmp")
    own = [state.folder(), ROOT, Path(sys.prefix), Path(sys.base_prefix), data_dir(), results_dir(), cache_dir()]
    for path in own:
        if TMP in path.parents:  # One that is made later would be another one on each node.
            path.mkdir(parents=True, exist_ok=True)
    paths = (path.resolve() for path in (*own, *named))
    return sorted({path for path in paths if TMP in path.parents and path.is_dir()})


def setup_script(host: str, shared: Iterable[Path]) -> str:
    """Return the shell commands that turn new namespaces for network, host name and mounts into a host.

    Args:
        host: Its name.
        shared: Folders below /tmp that it is to see.
    """
    folder = shlex.quote(str(state.folder()))
    stage = f"{folder}/stage"
    lines = [f"hostname {host}", "ip link set lo up",
             f"mount --bind {folder}/hosts /etc/hosts", "mount -t tmpfs -o mode=1777 labs /dev/shm",
             # The private /tmp is made elsewhere, so that the shared folders can still be found.
             f"mkdir -p {stage}", f"mount -t tmpfs -o mode=1777 labs {stage}"]
    for path in shared:
        inner = f"{stage}/{shlex.quote(str(path.relative_to(TMP)))}"
        lines += [f"mkdir -p {inner}", f"mount --rbind {shlex.quote(str(path))} {inner}"]
    # `mount` would note the move in /run/mount, which belongs to root; -n: without the note.
    return "\n".join([*lines, f"mount -n --move {stage} {TMP}"])


def hosts_file(hosts: Iterable[str]) -> str:
    """Return the hosts file of a cluster.

    Args:
        hosts: The names of all hosts.
    """
    return "127.0.0.1 localhost\n" + "".join(f"{state.address(host)} {host}\n" for host in hosts)


def start(node: str, shared: Iterable[Path]) -> subprocess.Popen:
    """Start the process that holds a node's namespaces; its standard output ends when the node is set up.

    Args:
        node: The node's name.
        shared: Folders below /tmp that it is to see.
    """
    script = f"set -e\n{setup_script(node, shared)}\nexec sleep infinity >&- 2>&-"
    return subprocess.Popen(["unshare", "--net", "--uts", "--ipc", "--mount", "bash", "-c", script],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_until_set_up(node: str, process: subprocess.Popen) -> None:
    """Wait until a node is set up.

    Args:
        node: The node's name.
        process: From `start`.

    Raises:
        LabError: It could not be set up.
    """
    if message := cast(IO[str], process.stdout).read().strip():
        raise LabError(f"{node} could not be set up: {message.splitlines()[-1]}")


def run(*commands: str) -> None:
    """Run commands of iproute2, given as lines.

    Raises:
        LabError: One failed.
    """
    for line in commands:
        done = subprocess.run(shlex.split(line), capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"{line}: {done.stderr.strip()}")


def connect(node: str, pid: int) -> None:
    """Join a node to the switch: its interface is eth0, the switch's port has the node's name.

    Args:
        node: The node's name.
        pid: The process that holds its namespaces.
    """
    run(f"ip link add {node} type veth peer name eth0 netns {pid}",
        f"ip link set {node} master switch up",
        f"nsenter --target={pid} --net ip addr add {state.address(node)}/24 dev eth0",
        f"nsenter --target={pid} --net ip link set eth0 up")


def make_switch() -> None:
    """Make the switch that joins all hosts; the head's own address is on it."""
    run("ip link add switch type bridge", f"ip addr add {state.address(state.HEAD)}/24 dev switch",
        "ip link set switch up")
