"""The end of a cluster: ordinary, killed, or in the middle of its start. Nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from labs.run.paths import ROOT
from tests.tools.cluster.client import Cluster, Process, names, until

MANY = 30


def head_of(cluster: Cluster) -> psutil.Process:
    return psutil.Process(int((cluster.folder / "head.pid").read_text().split()[0]))


def occupy(cluster: Cluster) -> list[subprocess.Popen]:
    """Run a command on each host, and a daemon that has left its terminal and parent."""
    shells = [cluster.start("shell", host, "--", "sleep", "86399") for host in ("head", "node1", "node2")]
    cluster.on("node2", "sh", "-c", "setsid sleep 86398 >/dev/null 2>&1 &")
    until(lambda: sum("86399" in line or "86398" in line for line in names(cluster.processes())) >= 4)
    return shells


def assert_all_gone(cluster: Cluster, seconds: float = 10) -> None:
    until(lambda: not cluster.processes(), seconds, lambda: names(cluster.processes()))


@pytest.mark.parametrize("how", ["down", "killed"])
def test_the_end_leaves_nothing(free, unchanged, how):
    free.labs("up", "--nodes", 2, "--bandwidth", "1gbit")
    shells = occupy(free)
    if how == "down":
        assert free.labs("down").stdout == "the cluster has ended\n"
    else:
        head_of(free).kill()
    for shell in shells:
        with shell:
            shell.communicate(timeout=10)
    assert_all_gone(free)
    assert "no cluster is up" in free.labs("status", code=1).stderr
    free.labs("up", "--nodes", 1)
    assert free.on("node1", "hostname") == "node1"
    free.labs("down")
    assert free.labs("down").stdout == "no cluster was up\n"
    assert not free.folder.exists()


def test_a_process_that_got_the_number_of_a_killed_head_is_let_live(free):
    free.labs("up")
    head_of(free).kill()
    with Process(["sleep", "86399"]) as other:
        began = (free.folder / "head.pid").read_text().split()[1]
        (free.folder / "head.pid").write_text(f"{other.pid} {began}\n")
        assert free.labs("down").stdout == "no cluster was up\n"
        assert other.poll() is None
        other.kill()


STAGES = {
    "the head runs": lambda cluster: (cluster.folder / "hosts").exists(),
    "some nodes run": lambda cluster: len(cluster.processes()) > 12,
    "links are being set": lambda cluster: (cluster.folder / "links.lock").exists(),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_a_start_that_is_ended_leaves_nothing(free, unchanged, stage, number):
    with free.start("up", "--nodes", MANY, "--bandwidth", "1gbit") as up:
        until(lambda: STAGES[stage](free) or up.poll() is not None)
        assert up.poll() is None, up.communicate()
        up.send_signal(number)
        _, errors = up.communicate(timeout=20)
    assert up.returncode == (130 if number == signal.SIGINT else -number), errors
    assert "Traceback" not in errors
    assert_all_gone(free, 30)
    free.labs("up", "--nodes", 1)
    assert free.on("node1", "hostname") == "node1"
    free.labs("down")
    assert not free.folder.exists()


def test_a_second_start_is_refused_and_down_waits_for_the_first(free, unchanged):
    with free.start("up", "--nodes", MANY) as up:
        until(lambda: (free.folder / "hosts").exists())
        second = free.labs("up", code=1)
        down = free.labs("down")
        _, errors = up.communicate(timeout=20)
    assert second.stderr == "labs: error: another `labs cluster up` or `down` is at work; try again in a moment\n"
    assert (up.returncode, errors) == (0, "")
    assert down.stdout == "the cluster has ended\n"
    assert_all_gone(free)
    assert not free.folder.exists()


def test_a_cluster_ends_where_the_first_process_reaps_no_orphans(free, tmp_path):
    """As in a container without an init: what is left of a killed command is never reaped. `timeout` is first here."""
    script = f"""set -e
        "$0" -m labs cluster up --share {tmp_path}
        "$0" -m labs cluster shell -- sh -c 'touch {tmp_path}/began; exec sleep 86399' &
        until [ -e {tmp_path}/began ]; do sleep 0.1; done
        kill -KILL $!
        sleep 1
        "$0" -m labs cluster down
        "$0" -m labs cluster up
        "$0" -m labs cluster down
    """
    user = ["--user", "--map-root-user"] if os.geteuid() else []
    container = ["unshare", *user, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "timeout", "60"]
    done = subprocess.run([*container, "bash", "-c", script, sys.executable], cwd=ROOT, env=free.environment(),
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the cluster has ended") == 2


def test_two_clusters_run_side_by_side(free, two):
    free.labs("up", "--nodes", 1)
    assert (free.on("node1", "hostname"), two.on("node1", "hostname")) == ("node1", "node1")
    assert free.on("node1", "readlink", "/proc/self/ns/net") != two.on("node1", "readlink", "/proc/self/ns/net")
    free.labs("down")
    assert two.on("node1", "hostname") == "node1"
