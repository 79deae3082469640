"""Faults between two nodes: the run ends, and its last line names the rank or the node that was lost."""

from __future__ import annotations

import re
import signal
import time

import psutil
import pytest

from tests.workers import nodes
from tests.workers.test_faults import rank_of, wait_for, works

STALL = 12
PLACE = r"\(epoch \d+, step \d+\)"


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two nodes."""
    try:
        made = nodes.Nodes(tmp_path_factory.mktemp("nodes"))
    except (nodes.UnavailableError, OSError) as reason:
        pytest.skip(f"no nodes without network namespaces, which need root: {reason}")
    yield made
    made.close()


@pytest.fixture
def running(two, tmp_path):
    """A run with a worker on each node, in its second epoch; with the processes of each node."""
    process = two.labs(tmp_path / "results", "run", "lab10", "--workers", 2, "--image-size", 32, "--epochs", 999,
                       "--stall-seconds", STALL, "--name", "it")
    output = wait_for(process, "epoch 1/")
    assert "2 workers on 2 nodes" in output
    time.sleep(2.5)  # Workers send a heartbeat each second: the last one names a step now, however fast the epochs are.
    yield process, two.processes("n1"), two.processes("n2")
    two.mend()


def last_line(process, timeout: float) -> str:
    began = time.monotonic()
    _, errors = process.communicate(timeout=timeout)
    print(f"| {time.monotonic() - began:.1f} s | {errors.strip().splitlines()[-1]} |")
    assert process.returncode == 1
    assert "Traceback" not in errors
    return errors.strip().splitlines()[-1]


def test_a_worker_killed_on_the_other_node_is_named_with_its_place(running):
    process, here, there = running
    (worker,) = [each for each in there if rank_of(each) == 1]
    worker.send_signal(signal.SIGKILL)
    last = last_line(process, timeout=15)
    cause = "killed by SIGKILL; out of memory[?] Then lower --batch-size"
    assert re.fullmatch(f"labs: error: rank 1 on n2 {PLACE}: {cause}", last), last
    psutil.wait_procs(here + there, timeout=5)
    assert not [each for each in here + there if works(each)]


def test_a_lost_node_is_named(running):
    """Everything on it is killed: mpirun ends with 0."""
    process, here, there = running
    for each in there:
        each.send_signal(signal.SIGKILL)
    last = last_line(process, timeout=15)
    assert re.match(r"labs: error: node n2 is lost: .*last heartbeats: .*rank 1 on n2 \(epoch", last), last
    psutil.wait_procs(here, timeout=5)
    assert not [each for each in here if works(each)]


def test_a_cut_link_ends_the_run_and_names_the_node_that_is_not_heard_from(running, two):
    process, here, _ = running
    two.cut("n2")
    last = last_line(process, timeout=STALL + 10)
    assert re.fullmatch(r"labs: error: node n2 has not been heard from for \d+ s \(rank 1: epoch \d+, step \d+\): "
                        "its link is cut, or the node is lost or frozen", last), last
    assert not [each for each in here if works(each)]
