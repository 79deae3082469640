"""The first process of a cluster: makes the nodes, starts Slurm, and waits. When it ends, the kernel ends all the rest.

    python -m labs.tools.cluster.head SPEC     inside new namespaces: see lifetime.py
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO, cast

from labs.run import cluster_state as state
from labs.run.errors import LabError
from labs.run.text import one_line
from labs.tools.cluster import enter, links, slurm

READY = "ready"
TMP = Path("/tmp")
"""Private on each host, like /dev/shm."""


def main() -> None:
    """Make the cluster, report READY or the error, and wait for the end; end at once if the starter has gone."""
    spec = json.loads(sys.argv[1])
    recorded = threading.Event()
    threading.Thread(target=_hear_starter, args=[recorded], daemon=True).start()
    try:
        _make(spec)
    except (LabError, OSError) as problem:
        print(one_line(problem), flush=True)
        sys.exit(1)
    print(READY, flush=True)
    recorded.wait()
    for stream in (0, 1):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The first process inherits orphans; none is kept as a zombie.
    while True:
        signal.pause()


def _hear_starter(recorded: threading.Event) -> None:
    """Wait until the starter has recorded this cluster. If it is killed before, end: no command would know it."""
    if not sys.stdin.read(1):
        os._exit(1)
    recorded.set()


def _make(spec: dict) -> None:
    shared = [Path(path) for path in spec["shared"]]
    names = list(spec["cores"])
    (state.folder() / "hosts").write_text(_hosts_file([*names, state.HEAD]))
    done = subprocess.run(["bash", "-ec", _setup_script(state.HEAD, shared)], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise LabError(done.stderr.strip().splitlines()[-1])
    _ip("ip link add switch type bridge", f"ip addr add {state.address(state.HEAD)}/24 dev switch",
        "ip link set switch up")  # It joins all hosts; the head's own address is on it.
    holders = {name: _hold(name, shared) for name in names}
    for name, holder in holders.items():
        _wait_until_set_up(name, holder)
        _connect(name, holder.pid)
    os.environ[state.INSIDE] = "1"
    cluster = state.Cluster(
        pids={state.HEAD: 1} | {name: holder.pid for name, holder in holders.items()}, cores=spec["cores"],
        links=dict.fromkeys(names, state.Link()), cpus=spec["cpus"], gpus=spec["gpus"],
        slurm=spec["slurm"], partitions=spec["partitions"], owner=spec["owner"], shared=spec["shared"])
    enter.write_launch_files(cluster)
    state.write(cluster)
    if spec["slurm"]:  # Before the links are slow.
        slurm.start(cluster)
    links.set_links(bandwidth=spec["bandwidth"], latency=spec["latency"])


def _setup_script(host: str, shared: Iterable[Path]) -> str:
    """Return the shell commands that turn new namespaces for network, host name and mounts into a host."""
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


def _hosts_file(hosts: Iterable[str]) -> str:
    """Return the text of the hosts file that all hosts have."""
    return "127.0.0.1 localhost\n" + "".join(f"{state.address(host)} {host}\n" for host in hosts)


def _hold(node: str, shared: Iterable[Path]) -> subprocess.Popen:
    """Start the process that holds a node's namespaces; its standard output ends when the node is set up."""
    script = f"set -e\n{_setup_script(node, shared)}\nexec sleep infinity >&- 2>&-"
    return subprocess.Popen(["unshare", "--net", "--uts", "--ipc", "--mount", "bash", "-c", script],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _wait_until_set_up(node: str, process: subprocess.Popen) -> None:
    """Wait until a node is set up, or raise LabError."""
    if message := cast(IO[str], process.stdout).read().strip():
        raise LabError(f"{node} could not be set up: {message.splitlines()[-1]}")


def _ip(*commands: str) -> None:
    """Run commands of iproute2, given as lines; raise LabError if one fails."""
    for line in commands:
        done = subprocess.run(shlex.split(line), capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"{line}: {done.stderr.strip()}")


def _connect(node: str, pid: int) -> None:
    """Join a node to the switch: its interface is eth0, the switch's port has the node's name."""
    _ip(f"ip link add {node} type veth peer name eth0 netns {pid}",
        f"ip link set {node} master switch up",
        f"nsenter --target={pid} --net ip addr add {state.address(node)}/24 dev eth0",
        f"nsenter --target={pid} --net ip link set eth0 up")


if __name__ == "__main__":
    main()
