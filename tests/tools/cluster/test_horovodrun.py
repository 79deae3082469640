"""Horovod's own launcher over two nodes: its workers get the key of their launch, and nobody else sees how."""

import subprocess
import sys

import pytest

from labs.run.paths import ROOT, search_path

pytestmark = pytest.mark.workers
PROGRAM = ROOT / "tests/workers/programs/elastic_function.py"


def test_elastic_workers_on_two_nodes_get_the_key_of_their_launch_not_by_a_command_line(two, tmp_path):
    # In place of ssh, whose options here are two times `-o NAME=VALUE`.
    scripts = {"ssh": f'echo "$@" >>{tmp_path}/lines; shift 4; exec {two.folder}/agent "$@"',
               "worker": f'echo $_HOROVOD_SECRET_KEY >{tmp_path}/key; exec {sys.executable} "$@"'}
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    command = two.command("node1", sys.executable, PROGRAM, tmp_path / "worker", "node1:1", "node2:1",
                          PATH=f"{tmp_path}:{search_path()}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, "weights [3.0, 3.0]" in done.stdout) == (0, True), done.stdout + done.stderr
    lines = (tmp_path / "lines").read_text()
    assert "node2" in lines
    assert (tmp_path / "key").read_text().strip() not in lines
