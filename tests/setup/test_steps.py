"""Commands with log and time limit; the lock that outlives a killed run."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest
from steps import SetupError, Steps, locked

from tests.setup.clone import ROOT


def test_a_killed_command_is_reported_as_such(steps):
    with pytest.raises(SetupError, match=r"bash was killed, most likely for lack of memory"):
        steps.run(["bash", "-c", "kill -9 $$"], os.environ)


NOWHERE = "http://127.0.0.1:9"  # Nothing listens there.


@pytest.fixture
def steps(tmp_path):
    return Steps(2, tmp_path / "log")


def test_a_command_that_hangs_is_stopped(steps):
    with pytest.raises(SetupError, match="bash did not end within 1 s and was stopped"):
        steps.run(["bash", "-c", "echo $$; exec sleep 60"], os.environ, timeout=1)
    hanging = int(steps.log.read_text().splitlines()[1])
    psutil.wait_procs([psutil.Process(hanging)] if psutil.pid_exists(hanging) else [], timeout=10)
    assert not psutil.pid_exists(hanging)


def test_a_missing_network_is_reported_as_such(steps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "uv", "--no-config", "pip", "install", "--target", "here", "--index-url", NOWHERE,
               "labs-nowhere"]
    clean = {name: value for name, value in os.environ.items() if "INDEX" not in name and "FIND_LINKS" not in name}
    with pytest.raises(SetupError, match=r"^the package index cannot be reached"):
        steps.run(command, clean | {"UV_HTTP_RETRIES": "0", "NO_PROXY": "127.0.0.1"})


HOLDER = """
import os, sys
from pathlib import Path
from steps import Steps, locked
with locked(Path("lock"), ""):
    script = "echo $$ > child.new; mv child.new child; exec sleep 60"
    Steps(1, Path("log")).run(["bash", "-c", script], os.environ)
"""


def test_the_next_run_waits_for_what_a_killed_run_left_running(tmp_path, capsys):
    env = os.environ | {"PYTHONPATH": str(ROOT / "setup")}
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], cwd=tmp_path, env=env)
    while not (tmp_path / "child").exists():
        time.sleep(0.05)
    holder.kill()
    holder.wait()
    child = int((tmp_path / "child").read_text())
    ending = subprocess.Popen(["bash", "-c", f"sleep 0.5; touch killed; kill {child}"], cwd=tmp_path)
    with locked(tmp_path / "lock", "waiting") as waited:
        assert waited
        assert (tmp_path / "killed").exists(), "did not wait for the child, which holds the lock until it is killed"
    ending.wait()
    assert capsys.readouterr().out == "waiting"
