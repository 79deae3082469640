"""Slurm's commands on the test cluster, and what runs on it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from labs.run.paths import ROOT, search_path
from labs.tools.cluster import slurm
from tests.tools.cluster.client import Cluster, missing, until

FOREIGN = ("SLURM", "SBATCH", "SINFO")
"""Variables that speak of another cluster, or of the job in which the tests run, begin with these."""


def unavailable() -> str:
    """Return why no cluster with Slurm can be started here, or an empty string."""
    return missing() or slurm.missing()


@dataclass
class Slurm:
    """Slurm's commands on a cluster, run on its head as on a login node."""

    cluster: Cluster

    @property
    def conf(self) -> Path:
        """The cluster's slurm.conf."""
        return self.cluster.folder / "slurm.conf"

    def process(self, *command: object, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess:
        """Run a command on the head, and return the finished process."""
        variables = {"SLURM_CONF": str(self.conf), "PATH": search_path()} | variables
        words = self.cluster.command("head", *command, cwd=cwd, **variables)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        return subprocess.run(words, env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240,
                              check=False)

    def run(self, *command: object, cwd: Path = ROOT, check: bool = True, **variables: str) -> str:
        """Run a command on the head and return what it printed, then its errors."""
        done = self.process(*command, cwd=cwd, **variables)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    @contextlib.contextmanager
    def drained(self, nodes: str) -> Iterator[None]:
        """Let nodes take no jobs, and have them back afterwards."""
        self.run("scontrol", "update", f"nodename={nodes}", "state=drain", "reason=test")
        try:
            yield
        finally:
            self.run("scontrol", "update", f"nodename={nodes}", "state=resume")
            # For a second or two such a node is "idle*": the controller has yet to hear of it.
            until(lambda: not re.search(r"drain|\*", self.run("sinfo", "--noheader", "--Node", "--format=%T")))

    def submit(self, *words: object, cwd: Path = ROOT, output: Path, **variables: str) -> Job:
        """Hand a job to sbatch, its output going to `output`."""
        answer = self.run("sbatch", "--parsable", f"--output={output}", *words, cwd=cwd, **variables)
        return Job(self, answer.strip(), output)


@dataclass
class Job:
    """A submitted job."""

    slurm: Slurm
    number: str
    output: Path

    def facts(self) -> dict[str, str]:
        """Return what scontrol says of the job."""
        return dict(re.findall(r"(\w+)=(\S*)", self.slurm.run("scontrol", "show", "job", self.number)))

    def wait(self, seconds: float = 120) -> str:
        """Wait until the job is over and return its final state."""
        deadline = time.monotonic() + seconds
        while (state := self.facts()["JobState"]) in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
            if time.monotonic() > deadline:
                self.slurm.run("scancel", self.number)
                pytest.fail(f"job {self.number} still {state} after {seconds} s:\n{self.text()}")
            time.sleep(0.2)
        return state

    def text(self) -> str:
        """Return what the job has printed so far."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""


def processes(conf: Path, name: str = "") -> list[str]:
    """Return what runs on the cluster of `conf`: daemons, job steps and jobs, or those with this name."""
    result = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mine = f"SLURM_CONF={conf}".encode() in (process / "environ").read_bytes().split(b"\0")
            comm = (process / "comm").read_text().strip()
        except OSError:  # It ended while we looked, or is someone else's.
            continue
        if mine and name in ("", comm):
            result.append(comm)
    return result
