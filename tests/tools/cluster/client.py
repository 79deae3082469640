"""`labs cluster` for the tests: clusters in their own folders, which end with the tests."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from labs.run import cluster_state as state
from labs.run.paths import ROOT
from labs.tools.cluster import nodes

LABS = [sys.executable, "-m", "labs"]
T = TypeVar("T")


@dataclass(frozen=True)
class Cluster:
    """A cluster's folder, and `labs cluster` for it."""

    folder: Path

    def environment(self, **variables: str) -> dict[str, str]:
        """Return the environment in which `labs` finds this cluster."""
        return os.environ | {state.FOLDER: str(self.folder), "PYTHONPATH": str(ROOT)} | variables

    def start(self, *words: object, cwd: Path = ROOT, **variables: str) -> subprocess.Popen:
        """Start `labs cluster ...` in its own process group, as a shell does."""
        return subprocess.Popen([*LABS, "cluster", *map(str, words)], cwd=cwd, env=self.environment(**variables),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)

    def labs(self, *words: object, code: int = 0, seconds: float = 120,
             **where: object) -> subprocess.CompletedProcess:
        """Run `labs cluster ...`; skip the test where no cluster can start."""
        with self.start(*words, **where) as process:
            output, errors = process.communicate(timeout=seconds)
        if words[0] == "up" and re.search("apt-get install|does not allow you to make namespaces", errors):
            pytest.skip(errors)
        assert process.returncode == code, f"exit code {process.returncode}\n{output}{errors}"
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def command(self, host: str, *words: object, cwd: Path = ROOT, **variables: str) -> list[str]:
        """Return the command line to which `labs cluster shell` comes in the end; it saves the start of `labs`."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(state.FOLDER, str(self.folder))
            cluster = state.require()
            return nodes.command(cluster, host, nodes.as_owner(cluster, [*map(str, words)]), cwd, variables)

    def on(self, host: str, *words: object) -> str:
        """Run a command on a host and return what it printed."""
        done = subprocess.run(self.command(host, *words), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.rstrip("\n")

    def processes(self, host: str = "") -> set[psutil.Process]:
        """Return the processes that belong to this cluster: all of them, or those on a host."""
        network = self.on(host, "readlink", "/proc/self/ns/net") if host else ""
        return {process for process in psutil.process_iter() if self._owns(process.pid, network)}

    def _owns(self, pid: int, network: str) -> bool:
        try:
            mine = f"{state.FOLDER}={self.folder}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            return mine and network in ("", os.readlink(f"/proc/{pid}/ns/net"))
        except OSError:  # It ended meanwhile, or is another user's.
            return False

    def wait_until_idle(self, idle: set[psutil.Process] = frozenset(), seconds: float = 15) -> None:
        """Wait until no other processes than these belong to this cluster."""
        until(lambda: self.processes() <= idle, seconds, lambda: self.processes() - idle)


def until(done: Callable[[], T], seconds: float = 30, printed: Callable[[], object] = str) -> T:
    """Wait for `done` and return its result; a failure shows what `printed` returns."""
    deadline = time.monotonic() + seconds
    while not (result := done()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain; {printed()}"
        time.sleep(0.1)
    return result


@contextlib.contextmanager
def ending(folder: Path) -> Iterator[Cluster]:
    """Yield the cluster of a folder, which is not up; end it after the block, or when the tests are killed."""
    down = ["env", f"{state.FOLDER}={folder}", f"PYTHONPATH={ROOT}", *LABS, "cluster", "down"]
    # Its input ends with this process, even if that is killed.
    guard = subprocess.Popen(["sh", "-c", 'cat; exec "$@"', "-", *down], cwd=ROOT, stdin=subprocess.PIPE,
                             stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        yield Cluster(folder)
    finally:
        guard.stdin.close()
        assert guard.wait(60) == 0


@contextlib.contextmanager
def running(folder: Path, *words: object) -> Iterator[Cluster]:
    """Run a cluster in this block, in a folder that does not exist, with options of `labs cluster up`."""
    with ending(folder) as cluster:
        cluster.labs("up", *words)
        yield cluster
