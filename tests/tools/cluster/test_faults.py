"""Faults of nodes and links in a run over two nodes: which the run survives, and what it reports of the others."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.tools.cluster.client import Cluster
from tests.workers.test_faults import ENDLESS, SMALL, rank_of, wait_for, weights

pytestmark = pytest.mark.workers
STALL = 12
LOST = r"rank 1 on node2 \(epoch \d+, step \d+\): no progress for \d+ s.*, or a node or link is lost"


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


@pytest.fixture
def training(two, tmp_path) -> Training:
    """Two nodes on which nothing runs."""
    return Training(two, tmp_path / "results")


@pytest.fixture(scope="module")
def undisturbed(two, tmp_path_factory) -> dict[str, np.ndarray]:
    """The weights of a run without a fault."""
    results = tmp_path_factory.mktemp("undisturbed")
    Training(two, results).finish()
    return weights(results)


def kill_worker(cluster: Cluster) -> None:
    (worker,) = [each for each in cluster.processes("node2") if rank_of(each) == 1]
    worker.kill()


def cut_link(cluster: Cluster) -> Callable[[], object]:
    cluster.labs("link", "node2", "--down")
    return lambda: cluster.labs("link", "node2", "--up")


def kill_node(cluster: Cluster) -> None:
    for each in cluster.processes("node2"):
        with contextlib.suppress(psutil.NoSuchProcess):  # Killing an earlier one may have ended it.
            each.kill()


def assert_it_ends(training: Training, break_it: Callable, line: str, epochs: Sequence[object] = ENDLESS) -> None:
    process = training.start(*epochs, "--stall-seconds", STALL)
    if epochs == ENDLESS:
        time.sleep(2.5)  # Until each worker has sent a heartbeat that names a step, once a second.
    mend = break_it(training.cluster)
    _, errors = process.communicate(timeout=2 * STALL + 20)
    if mend:
        mend()
    assert process.returncode == 1, errors
    assert re.match(f"labs: error: {line}", errors.strip().splitlines()[-1]), errors
    training.cluster.wait_until_idle(training.idle)


def test_a_killed_worker_on_another_node_ends_the_run_and_is_named(training):
    assert_it_ends(training, kill_worker, r"rank 1 on node2 \(epoch \d+, step \d+\): killed by SIGKILL; out of memory")


def test_after_a_cut_link_the_resumed_run_comes_to_the_same_weights(training, undisturbed):
    assert_it_ends(training, cut_link, f"{LOST}$", SMALL)
    assert "resumed after epoch" in training.finish("--resume")
    assert_equal(weights(training.results), undisturbed)
    training.cluster.wait_until_idle(training.idle)


def test_a_link_that_is_cut_for_some_seconds_changes_no_weight(training, undisturbed):
    process = training.start()
    mend = cut_link(training.cluster)
    time.sleep(4)
    assert process.poll() is None, "the run did not need the link"
    mend()
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, output + errors
    assert_equal(weights(training.results), undisturbed)
    training.cluster.wait_until_idle(training.idle)


def assert_equal(weights: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> None:
    assert list(weights) == list(others)
    for name, values in weights.items():
        np.testing.assert_array_equal(values, others[name], err_msg=name)


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
    training.idle -= training.cluster.processes("node2")
    assert_it_ends(training, kill_node, r"node node2 is lost: .*last heartbeats: .*rank 1 on node2 \(epoch")
