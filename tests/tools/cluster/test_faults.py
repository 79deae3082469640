"""Faults of nodes and links in a run over two nodes: which the run survives, and what it reports of the others."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.tools.cluster.client import Cluster, names, running, sharing, until
from tests.workers.test_faults import ENDLESS, SMALL, rank_of, wait_for, weights, works

pytestmark = pytest.mark.workers
STALL = 12
LAUNCHERS = {"mpirun", "prterun", "prted"}


class Training:
    """Lab 10 on the two nodes of a cluster, a worker on each.

    Args:
        cluster: The cluster.
        results: The results root, which all nodes see.
    """

    def __init__(self, cluster: Cluster, results: Path):
        self.cluster, self.results = cluster, results
        self.idle = set(cluster.processes())

    def start(self, *words: object) -> subprocess.Popen:
        """Start the run and wait until its first epoch is done."""
        process = self.cluster.start("run", "lab10", *SMALL, *words, LABS_RESULTS=str(self.results))
        output = wait_for(process, "epoch 1/")
        assert "2 workers on 2 nodes" in output
        return process

    def finish(self, *words: object) -> str:
        """Run to the end and return what the run printed."""
        return finished(self.cluster.start("run", "lab10", *SMALL, *words, LABS_RESULTS=str(self.results)))

    def left(self) -> list[psutil.Process]:
        """Return the processes of the cluster that were not there before the run."""
        return [process for process in self.cluster.processes() if process not in self.idle and works(process)]

    def launchers(self, host: str = "") -> list[psutil.Process]:
        """Return the launchers on a host, or on any."""
        found = []
        for process in self.cluster.processes(host):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [process] * (process.name() in LAUNCHERS)
        return found


def finished(process: subprocess.Popen) -> str:
    """Return what a run printed that must succeed."""
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, f"exit code {process.returncode}\n{output}\n{errors}"
    return output


def last_line(process: subprocess.Popen, timeout: float) -> str:
    """Return the last line of a run that must fail."""
    _, errors = process.communicate(timeout=timeout)
    assert process.returncode == 1, errors
    assert "Traceback" not in errors
    return errors.strip().splitlines()[-1]


@pytest.fixture
def training(tmp_path_factory, tmp_path) -> Iterator[Training]:
    """Two nodes on which nothing runs."""
    folder = tmp_path_factory.mktemp("nodes") / "cluster"
    with running(folder, "--nodes", 2, *sharing(tmp_path)) as cluster:
        yield Training(cluster, tmp_path / "results")


@pytest.fixture(scope="module")
def same_weights(tmp_path_factory) -> Callable[[Path], None]:
    """Compare the weights of a run with those of an undisturbed one, bit for bit."""
    root = tmp_path_factory.mktemp("undisturbed")
    with running(root / "cluster", "--nodes", 2, *sharing(root)) as cluster:
        Training(cluster, root / "results").finish()
    undisturbed = weights(root / "results")

    def compare(results: Path) -> None:
        mine = weights(results)
        assert list(mine) == list(undisturbed)
        for name in mine:
            np.testing.assert_array_equal(mine[name], undisturbed[name], err_msg=name)

    return compare


@pytest.mark.parametrize(("what", "line"), [
    ("worker", r"rank 1 on node2 \(epoch \d+, step \d+\): killed by SIGKILL; out of memory[?] Then lower --batch-"),
    ("node", r"node node2 is lost: .*last heartbeats: .*rank 1 on node2 \(epoch")])  # mpirun ends with 0.
def test_a_kill_on_the_other_node_is_reported_with_node_rank_and_epoch(training, what, line):
    process = training.start(*ENDLESS)
    time.sleep(2.5)  # Until each worker has sent a heartbeat that names a step, once a second.
    for each in training.cluster.processes("node2"):
        if what == "node" or rank_of(each) == 1:
            with contextlib.suppress(psutil.NoSuchProcess):  # Killing an earlier one may have ended it.
                each.kill()
    last = last_line(process, timeout=15)
    assert re.match(f"labs: error: {line}", last), last
    until(lambda: not training.left(), 5, lambda: names(training.left()))


def test_a_cut_link_ends_the_run_and_names_the_node_and_the_resumed_run_comes_to_the_same_weights(
        training, same_weights):
    process = training.start("--stall-seconds", STALL)
    training.cluster.labs("link", "node2", "--down")
    last = last_line(process, timeout=STALL + 20)
    assert re.match(r"labs: error: .*rank 1 on node2 \(epoch \d+, step \d+\): no progress for \d+ s .* link is lost",
                    last), last
    here = {each.pid for each in training.left()} - {each.pid for each in training.cluster.processes("node2")}
    assert not here, names([psutil.Process(pid) for pid in here])
    training.cluster.labs("link", "node2", "--up")
    assert "resumed after epoch" in training.finish("--resume")
    same_weights(training.results)
    until(lambda: not training.launchers(), 15, lambda: names(training.left()))


def test_a_link_that_is_cut_for_some_seconds_changes_no_weight(training, same_weights):
    process = training.start()
    training.cluster.labs("link", "node2", "--down")
    time.sleep(4)
    assert process.poll() is None, "the run did not need the link"
    training.cluster.labs("link", "node2", "--up")
    finished(process)
    same_weights(training.results)
    until(lambda: not training.left(), 5, lambda: names(training.left()))


def test_ctrl_c_saves_and_leaves_no_process_on_any_node(training):
    process = training.start(*ENDLESS)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=40)
    assert process.returncode == 130, errors
    assert "--resume" in errors.strip().splitlines()[-1]
    assert re.search(r"^stopped and saved after ", output, re.MULTILINE), output
    assert list((training.results / "lab10_caltech/it/checkpoints").glob("*.npz"))
    until(lambda: not training.left(), 5, lambda: names(training.left()))


def test_a_run_ends_with_the_command_that_started_it(training):
    process = training.start(*ENDLESS)
    process.kill()
    process.communicate(timeout=20)
    until(lambda: not training.left(), 15, lambda: names(training.left()))
