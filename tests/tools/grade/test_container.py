"""The container for students' functions: what they try succeeds without it and fails in it."""

import os
import socket
import subprocess
import sys

import psutil
import pytest

from labs.exercises import fresh_process
from labs.run.errors import LabError
from labs.run.paths import ROOT
from labs.tools.grade import container
from tests.tools.grade import packed

ATTACKS = """
import os, signal, socket, time
def attack(folder, port, victim, kit):
    started, outcomes = [], {}
    def fork():
        for _ in range(100):
            if (process := os.fork()) == 0:
                time.sleep(60)
            started.append(process)
    for name, attempt in {
        "read another hand-in": lambda: open(folder + "/secret").close(),
        "list its folder": lambda: os.listdir(folder),
        "read the kit's graders": lambda: os.listdir(kit),
        "read a process's variables": lambda: open(f"/proc/{victim}/environ", "rb").close(),
        "write beside it": lambda: open(folder + "/new", "w").close(),
        "delete": lambda: os.unlink(folder + "/old"),
        "overwrite": lambda: open(folder + "/secret", "w").close(),
        "open to all": lambda: os.chmod(folder, 0o777),
        "connect": lambda: socket.create_connection(("127.0.0.1", port), 5).close(),
        "signal": lambda: os.kill(victim, signal.SIGCONT),
        "fill the disk": lambda: [open(str(number), "wb").write(bytes(40 << 20)) for number in range(3)],
        "a hundred processes": fork,
    }.items():
        try:
            attempt()
            outcomes[name] = "done"
        except BaseException as stopped:
            outcomes[name] = type(stopped).__name__
    for process in started:
        os.kill(process, signal.SIGKILL)
    return outcomes
"""


def test_whatever_succeeds_without_it_is_refused_in_it(tmp_path):
    with (socket.create_server(("127.0.0.1", 0)) as server,
          subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as victim):
        stopped = []
        for where in ((), container.command()):
            for name in ("secret", "old"):
                (tmp_path / name).write_text("another student's answer")
            with fresh_process.start_process(ATTACKS, "attack", container=where) as ask:
                outcomes = ask([str(tmp_path), server.getsockname()[1], victim.pid, str(ROOT / "labs/exercises")])
            stopped.append({name for name, did in outcomes["value"].items() if did != "done"})
        victim.kill()
    assert stopped == [set(), {*outcomes["value"]}], "without it, each attempt is a real one"


@pytest.mark.parametrize("contained", [True, False])
def test_a_function_that_never_ends_is_ended_with_all_that_it_started(contained, monkeypatch):
    monkeypatch.setattr(fresh_process, "SECONDS", 4)
    cell = "import os\ndef f(x):\n    os.fork()\n    while True: pass\n"
    before = {each.pid for each in psutil.process_iter()}
    with (fresh_process.start_process(cell, "f", container=container.command() if contained else ()) as ask,
          pytest.raises(AssertionError, match="had not ended after 4 s")):
        ask([1])
    mine = [each for each in psutil.process_iter(["cmdline"])
            if each.pid not in before and "child.py" in str(each.info["cmdline"])]
    assert not psutil.wait_procs(mine, timeout=5)[1]


def test_without_bubblewrap_nothing_is_graded_unless_it_is_trusted(tmp_path, monkeypatch):
    packed.write(tmp_path, "s1")
    words = [sys.executable, "-m", "labs", "grade", str(tmp_path)]
    env = os.environ | {"PATH": ""}
    refused = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=env)
    assert refused.returncode == 1
    assert refused.stderr.startswith("labs: error: bubblewrap is not installed (apt install bubblewrap)")
    assert not (tmp_path / "graded").exists()
    subprocess.run([*words, "--trust"], cwd=ROOT, check=True, env=env)
    assert "s1,lab04_speedup,15,15," in (tmp_path / "graded/grades.csv").read_text()
    monkeypatch.setattr(container, "SYSTEM", ())  # As where the kernel makes no namespace: bubblewrap fails.
    with pytest.raises(LabError, match=r"bubblewrap makes no container here \(.*\), and .*--trust"):
        container.command()
