"""Mistakes on the command line of `labs cluster`: one line, exit code 1, and nothing changed."""

from __future__ import annotations

import os
import re

import psutil
import pytest

from labs.run import cluster_state as state
from tests.tools.cluster.client import names

ON_A_CLUSTER = {
    "up": "a cluster is already up; `labs cluster down` ends it",
    "shell node9": "unknown node 'node9'; there are: node1, node2",
    "link node1 node9 --down": "unknown node 'node9'; there are: node1, node2",
    "link": "say what to change: --bandwidth, --latency, --down or --up; `labs cluster status` shows the links",
    "link --bandwidth 10": "'10' is not a bandwidth from 100kbit to 100gbit; write 100mbit, 1gbit or unlimited",
    "link --latency 5": "'5' is not a latency up to 10 s; write 200us or 5ms",
    "link --up --down": "--down: not allowed with argument --up; .*",
    "run nolab": "unknown lab 'nolab'; .*",
    "run lab10 --results /tmp/nowhere": "results folder /tmp/nowhere: each node has its own /tmp; .* --share .*",
}
WITHOUT_ONE = {
    "frobnicate": "labs cluster: 'frobnicate' is not one of .*",
    "up --nodes 100": "--nodes 100: a cluster has 1 to 64 nodes",
    "up --nodes two": "--nodes: 'two' is not a whole number .*",
    "up --cores 9999": r"--cores 9999: this machine has \d+",
    "up --cpus 4": "--cpus, --gpus and --partitions are for Slurm; add --slurm",
    "up --partitions course": "--cpus, --gpus and --partitions are for Slurm; add --slurm",
    "up --share /tmp/no/such": "--share: '/tmp/no/such' is not a folder; .*",
    "up --share /etc": "--share '/etc' is not below /tmp; name a folder below it, or .* except /tmp",
    "run --workers 2 lab10": "name the lab first: labs cluster run LAB --workers 2 lab10; .*",
    **dict.fromkeys(["status", "link --up", "run lab10", "shell"],
                    "no cluster is up; start one with `labs cluster up --nodes 2`"),
}


def refused(cluster, words: str) -> str:
    """Return the only line that a command prints."""
    done = cluster.labs(*words.split(), code=1)
    assert done.stdout == ""
    assert re.fullmatch("labs: error: .*\n", done.stderr), done.stderr
    return done.stderr.removeprefix("labs: error: ").strip()


@pytest.mark.parametrize(("words", "line"), ON_A_CLUSTER.items())
def test_a_mistake_is_refused_in_one_line_and_changes_nothing(two, words, line):
    before = two.labs("status").stdout
    message = refused(two, words)
    assert re.fullmatch(line, message), message
    assert two.labs("status").stdout == before


@pytest.mark.parametrize(("words", "line"), WITHOUT_ONE.items())
def test_a_mistake_starts_no_cluster(free, words, line):
    message = refused(free, words)
    assert re.fullmatch(line, message), message
    assert not free.processes(), names(free.processes())


def test_a_folder_with_other_files_is_not_touched(free):
    """At its end a cluster deletes its folder."""
    free.folder.mkdir()
    file = free.folder / "thesis.tex"
    file.touch()
    assert refused(free, "up") == f"{free.folder} has other files; set LABS_CLUSTER to a path that does not exist"
    assert file.exists()
    file.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_cluster_of_someone_else_is_not_entered(tmp_path, monkeypatch):
    """In /tmp anyone may make the folder first, with the number of a process of theirs."""
    monkeypatch.setenv(state.FOLDER, str(tmp_path))
    state.sign(psutil.Process())
    assert state.head_process() == psutil.Process()
    os.chown(tmp_path, 65534, 65534)
    assert state.head_process() is None
