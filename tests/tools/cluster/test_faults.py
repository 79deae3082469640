"""Faults of nodes and links in a run over two nodes: which the run survives, and what it reports of the others."""

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.tools.cluster.client import Cluster
from tests.workers.test_faults import ENDLESS, SMALL, rank_of, wait_for, weights

pytestmark = pytest.mark.workers
STALL = 12


class Training:
    """Lab 10 on the two nodes of a cluster, a worker on each."""

    def __init__(self, cluster: Cluster, results: Path):
        self.cluster, self.results = cluster, results
        self.idle = cluster.processes()

    def start(self, *words: object) -> subprocess.Popen:
        """Start the run and wait until its first epoch is done."""
        process = self.cluster.start("run", "lab10", *SMALL, *words, LABS_RESULTS=str(self.results))
        assert "2 workers on 2 nodes" in wait_for(process, "epoch 1/")
        return process

    def finish(self, *words: object) -> str:
        """Run to the end and return what the run printed."""
        return self.cluster.labs("run", "lab10", *SMALL, *words, seconds=240, LABS_RESULTS=str(self.results)).stdout

    def assert_it_ends(self, process: subprocess.Popen, line: str) -> None:
        """Wait for the end of a run that fails with this last line and leaves no process."""
        _, errors = process.communicate(timeout=2 * STALL + 20)
        assert process.returncode == 1, errors
        assert re.match(f"labs: error: {line}", errors.strip().splitlines()[-1]), errors
        self.cluster.wait_until_idle(self.idle)


@pytest.fixture
def training(two, tmp_path) -> Training:
    """Two nodes on which nothing runs."""
    return Training(two, tmp_path / "results")


def test_a_killed_worker_on_another_node_ends_the_run_and_is_named(training):
    process = training.start(*ENDLESS)
    time.sleep(2.5)  # Until each worker has sent a heartbeat that names a step, once a second.
    (worker,) = [each for each in training.cluster.processes("node2") if rank_of(each) == 1]
    worker.kill()
    training.assert_it_ends(process, r"rank 1 on node2 \(epoch \d+, step \d+\): killed by SIGKILL; out of memory")


def test_after_a_cut_link_the_resumed_run_comes_to_the_same_weights(training, tmp_path):
    process = training.start("--stall-seconds", STALL)
    training.cluster.labs("link", "node2", "--down")
    try:  # Each rank waits for the other: the last heartbeats decide who is named.
        training.assert_it_ends(process, r"rank [01] on node[12] \(epoch \d+, step \d+\).*: no progress.*link is lost$")
    finally:
        training.cluster.labs("link", "node2", "--up")
    assert "resumed after epoch" in training.finish("--resume")
    undisturbed = Training(training.cluster, tmp_path / "undisturbed")
    undisturbed.finish()
    expected = weights(undisturbed.results)
    for name, values in weights(training.results).items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


def test_ctrl_c_saves_and_leaves_no_process_on_any_node(training):
    process = training.start(*ENDLESS)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=40)
    assert (process.returncode, "--resume" in errors.strip().splitlines()[-1]) == (130, True), errors
    assert re.search(r"^stopped and saved after ", output, re.MULTILINE), output
    training.cluster.wait_until_idle(training.idle)


def test_a_run_ends_with_the_command_that_started_it(training):
    process = training.start(*ENDLESS)
    process.kill()
    process.communicate(timeout=20)
    training.cluster.wait_until_idle(training.idle)


def test_a_lost_node_ends_the_run_and_is_named(training):
    """The last test of the file: the node is gone. mpirun ends with 0."""
    process, node = training.start(*ENDLESS), training.cluster.processes("node2")
    time.sleep(2.5)
    for each in node:
        with contextlib.suppress(psutil.NoSuchProcess):  # Killing an earlier one may have ended it.
            each.kill()
    training.idle -= node
    training.assert_it_ends(process, r"node node2 is lost: .*last heartbeats: .*rank 1 on node2 \(epoch")
