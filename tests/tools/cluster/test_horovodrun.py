"""Horovod's own launcher over two nodes: its servers know its workers, and nobody else sees how."""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest

from labs.run.paths import ROOT, search_path
from tests.tools.cluster.client import until

pytestmark = pytest.mark.workers
PROGRAM = ROOT / "tests" / "workers" / "programs" / "elastic_function.py"


def test_elastic_workers_on_two_nodes_get_the_key_of_their_launch_not_by_a_command_line(two, tmp_path):
    nodes = [tmp_path / "node1", tmp_path / "node2"]
    # In place of ssh, whose options here are two times `-o NAME=VALUE`; and workers that wait.
    scripts = {"ssh": f'echo "$@" >>{tmp_path}/lines; shift 4; exec {two.folder}/agent "$@"',
               "worker": f"echo $_HOROVOD_SECRET_KEY >{tmp_path}/key; touch {tmp_path}/$HOROVOD_HOSTNAME\n"
                         f"until [ -e {tmp_path}/go ]; do sleep 0.1; done\n"
                         f'exec {sys.executable} "$@"'}
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    command = two.command("node1", sys.executable, PROGRAM, tmp_path / "worker", "node1:1", "node2:1", cwd=ROOT,
                          PATH=f"{tmp_path}:{search_path()}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as launcher:
        until(lambda: launcher.poll() is not None or all(node.exists() for node in nodes), 240)
        (tmp_path / "go").touch()
        output = launcher.communicate()[0]
    assert (launcher.returncode, "weights [3.0, 3.0]" in output) == (0, True), output
    key = (tmp_path / "key").read_text().strip()
    lines = (tmp_path / "lines").read_text()
    assert key not in lines
    # The program that finds the network gets Horovod's settings, as a pickle in Base64.
    (probe,) = [line for line in lines.splitlines() if "horovod.runner.task_fn" in line]
    settings = base64.b64decode(probe.split()[-1])
    assert b"ElasticSettings" in settings
    assert bytes.fromhex(key) not in settings
