"""The container for students' functions: what they try succeeds without it and fails in it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from labs.exercises import fresh_process
from labs.run.errors import LabError
from labs.run.paths import ROOT
from labs.tools.grade import container
from tests.tools.grade import packed

SOURCE = (ROOT / "tests/tools/grade/attacks.py").read_text()


@pytest.fixture
def target(tmp_path):
    """A folder, a port and a process that a function may attack, and the folder of the kit's solutions."""
    for name in ("secret", "old"):
        (tmp_path / name).write_text("another student's answer")
    with (socket.create_server(("127.0.0.1", 0)) as server,
          subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as victim):
        yield str(tmp_path), server.getsockname()[1], victim.pid, str(ROOT / "labs/exercises")
        victim.kill()


def test_whatever_succeeds_without_it_is_refused_in_it(target, tmp_path):
    with fresh_process.start_process(SOURCE, "attack") as function:
        outcomes = function.call(target)["value"]
    not_tried = set() if os.geteuid() == 0 else {"write in the root folder"}
    assert {name for name, did in outcomes.items() if did != "done"} <= not_tried, "each attempt is a real one"
    (tmp_path / "old").write_text("another student's answer")
    before = {path.name: path.stat() for path in tmp_path.iterdir()}
    with fresh_process.start_process(SOURCE, "attack", container=container.command()) as function:
        outcomes = function.call(target)["value"]
    assert not {name for name, did in outcomes.items() if did == "done"}
    after = {path.name: path.stat() for path in tmp_path.iterdir()}
    assert [(name, each.st_mtime_ns, each.st_mode) for name, each in after.items()] == [
        (name, each.st_mtime_ns, each.st_mode) for name, each in before.items()]


def test_a_function_that_never_ends_is_ended_with_all_that_it_started(monkeypatch):
    monkeypatch.setattr(fresh_process, "SECONDS", 2)
    cell = "import os\ndef f(x):\n    os.fork()\n    while True: pass\n"
    with (fresh_process.start_process(cell, "f", container=container.command()) as function,
          pytest.raises(AssertionError, match="had not ended after 2 s")):
        function.call([1])


def test_without_bubblewrap_nothing_is_graded_unless_it_is_trusted(tmp_path, monkeypatch):
    cell = "print('9 hand-ins')\ndef excess(one, many, n):\n    return {k: many[k] - one[k] / n for k in one}\n"
    packed.write(tmp_path, "s1", cell=cell)
    words = [sys.executable, "-m", "labs", "grade", str(tmp_path)]
    env = os.environ | {"PATH": "", "PYTHONPATH": str(ROOT)}
    refused = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=env)
    assert refused.returncode == 1
    assert refused.stderr.startswith("labs: error: bubblewrap is not installed (apt install bubblewrap)")
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "graded").exists()
    trusted = subprocess.run([*words, "--trust"], cwd=ROOT, capture_output=True, text=True, check=True, env=env)
    assert trusted.stdout.startswith("1 hand-in, 0 not graded")
    assert "9 hand-ins" not in trusted.stdout
    assert "s1,lab04_speedup,15,15," in (tmp_path / "graded/grades.csv").read_text()
    monkeypatch.setattr(container, "SYSTEM", ())  # As where the kernel makes no namespace: bubblewrap fails.
    with pytest.raises(LabError, match=r"bubblewrap makes no container here \(.*\), and .*--trust"):
        container.command()
