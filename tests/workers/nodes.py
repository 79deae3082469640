"""Two nodes on this machine: network namespaces, each with its own address and host name, joined by a bridge.

They share the file system, as the nodes of a cluster do. Everything here is inside those namespaces: nothing of the
machine's own network is changed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil

NAMES = ("n1", "n2")
SUBNET = "10.77.0.0/24"


class UnavailableError(Exception):
    """This machine cannot make network namespaces."""


def ip(*words: str) -> None:
    """Run iproute2's `ip`."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Nodes:
    """The nodes n1, where programs are started, and n2.

    Args:
        folder: For the files that mpirun needs.

    Raises:
        UnavailableError: Says why.
    """

    def __init__(self, folder: Path):
        if not shutil.which("ip") or not shutil.which("unshare"):
            raise UnavailableError("no `ip` or no `unshare` on this machine")
        self.name = f"lab{os.getpid()}"
        self.started: list[subprocess.Popen] = []
        try:
            self._make()
        except (UnavailableError, OSError):
            self.close()
            raise
        self.agent, self.hosts = folder / "agent", folder / "hosts"
        # In place of ssh: mpirun calls it with a host and a command line, and like ssh it passes no environment on.
        root = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
        self.agent.write_text(f'#!/bin/bash\nhost=$1; shift\nexec env -i PATH="$PATH" HOME="$HOME" {root} '
                              f'ip netns exec {self.name}-$host unshare --uts bash -c "hostname $host; $*"\n')
        self.agent.chmod(0o755)
        self.hosts.write_text("".join(f"{name} slots=1\n" for name in NAMES))

    def _make(self) -> None:
        ip("link", "add", self.name, "type", "bridge")
        ip("link", "set", self.name, "up")
        for number, name in enumerate(NAMES, 1):
            space = f"{self.name}-{name}"
            ip("netns", "add", space)
            ip("link", "add", f"{self.name}{name}", "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", f"{self.name}{name}", "master", self.name, "up")
            ip("-n", space, "addr", "add", SUBNET.replace("0/", f"{number}/"), "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
            etc = Path("/etc/netns") / space  # `ip netns exec` shows these files as those of /etc.
            etc.mkdir(parents=True)
            names = (f"{SUBNET.replace('0/24', str(each))} {other}\n" for each, other in enumerate(NAMES, 1))
            (etc / "hosts").write_text("127.0.0.1 localhost\n" + "".join(names))

    def labs(self, results: Path, *words: object) -> subprocess.Popen:
        """Start `labs ...` on n1, with mpirun's own variables naming both nodes."""
        variables = {
            "PRTE_MCA_plm_ssh_agent": str(self.agent), "PRTE_MCA_prte_default_hostfile": str(self.hosts),
            "PRTE_MCA_prte_if_include": SUBNET, "OMPI_MCA_btl_tcp_if_include": SUBNET, "LABS_RESULTS": str(results),
        }
        process = subprocess.Popen(
            ["ip", "netns", "exec", f"{self.name}-n1", "unshare", "--uts", "bash", "-c", 'hostname n1; exec "$@"', "-",
             sys.executable, "-m", "labs", *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | variables)
        self.started.append(process)
        return process

    def processes(self, name: str) -> list[psutil.Process]:
        """Return the processes of a node."""
        listed = subprocess.run(["ip", "netns", "pids", f"{self.name}-{name}"], capture_output=True, text=True,
                                check=False).stdout
        return [psutil.Process(int(pid)) for pid in listed.split() if psutil.pid_exists(int(pid))]

    def cut(self, name: str) -> None:
        """Cut a node's link. The node itself sees no more than a cable that has been pulled out elsewhere."""
        ip("link", "set", f"{self.name}{name}", "nomaster")

    def mend(self) -> None:
        """Join all nodes again, and end what is left on them."""
        for name in NAMES:
            ip("link", "set", f"{self.name}{name}", "master", self.name)
        self._end_all()

    def _end_all(self) -> None:
        left = [process for name in NAMES for process in self.processes(name)]
        for process in left:
            process.send_signal(signal.SIGKILL)
        psutil.wait_procs(left, timeout=5)
        for process in self.started:
            process.wait()
            process.stdout.close()
            process.stderr.close()
        self.started.clear()

    def close(self) -> None:
        """Remove everything."""
        self._end_all()
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", f"{self.name}-{name}"], capture_output=True, check=False)
            shutil.rmtree(Path("/etc/netns") / f"{self.name}-{name}", ignore_errors=True)
        subprocess.run(["ip", "link", "del", self.name], capture_output=True, check=False)
