"""Slurm's commands on the test cluster, and what runs on it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from labs.run.paths import ROOT, search_path
from labs.tools.cluster import slurm
from tests.tools.cluster import client
from tests.tools.cluster.client import Cluster, until

FOREIGN = ("SLURM", "SBATCH", "SINFO")
"""Variables that speak of another cluster, or of the job in which the tests run, begin with these."""
UNFINISHED = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")


def unavailable() -> str:
    """Return why Slurm cannot be started here, or an empty string."""
    return "no Slurm" * (not all(shutil.which(program, path=search_path()) for program in slurm.PROGRAMS))


@dataclass
class Slurm:
    """Slurm's commands on a cluster, run on its head as on a login node."""

    cluster: Cluster

    def process(self, *command: object, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess:
        """Run a command on the head, and return the finished process."""
        variables = {"SLURM_CONF": f"{self.cluster.folder}/slurm.conf", "PATH": search_path()} | variables
        words = self.cluster.command("head", *command, cwd=cwd, **variables)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        return subprocess.run(words, env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240,
                              check=False)

    def run(self, *command: object, cwd: Path = ROOT, **variables: str) -> str:
        """Run a command on the head, which must succeed, and return what it printed, then its errors."""
        done = self.process(*command, cwd=cwd, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

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
        until(lambda: self.facts()["JobState"] not in UNFINISHED, seconds, self.text)
        return self.facts()["JobState"]

    def text(self) -> str:
        """Return what the job has printed so far."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""


@contextlib.contextmanager
def running(tmp_path_factory: pytest.TempPathFactory, cpus: int = 4) -> Iterator[Slurm]:
    """Run Slurm on two nodes that report these CPUs and two GPUs each."""
    cores = min(cpus, len(os.sched_getaffinity(0)))
    words = ["--slurm", "--nodes", 2, "--cores", cores, "--cpus", cpus, "--gpus", 2]
    with client.running(tmp_path_factory.mktemp("slurm") / "cluster", *words) as cluster:
        yield Slurm(cluster)
