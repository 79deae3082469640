"""Programs under supervision: their outcome in one line, and none of their processes is left."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from labs.launch import failure, supervisor
from tests.launch.test_failure import line
from tests.tools.cluster.client import until
from tests.waiting import ends


@pytest.mark.parametrize(("script", "code", "cause"), [
    ("echo note >&2; echo 'ValueError: no' >&2; echo trailer >&2; exit 3", 3, "ValueError: no"),
    ("exit 3", 3, "exited with code 3 and printed nothing"),
    ("kill -KILL $$", -9, "was killed by SIGKILL"),
], ids=["error line", "silent", "killed"])
def test_the_outcome_of_a_program(script, code, cause):
    outcome = supervisor.complete(["bash", "-c", script], 60)
    assert (outcome.code, outcome.cause) == (code, cause)


def works(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_program_past_its_time_limit_ends_with_all_that_it_started(tmp_path):
    note = tmp_path / "pids"
    # The child ignores the signal that ends its parent, as a worker that hangs in a library may.
    child = f"trap \"\" TERM; echo $$ >> {note}; sleep 60 & echo $! >> {note}; wait"
    outcome = supervisor.complete(["bash", "-c", f"echo $$ > {note}; bash -c '{child}'"], 2)
    assert (outcome.code, outcome.cause) == (None, "had not ended after 2 s")
    pids = [int(pid) for pid in note.read_text().split()]
    assert len(pids) == 3
    until(lambda: not any(map(works, pids)), 10)


@pytest.mark.slow
def test_a_launcher_that_does_not_end_after_its_workers_have_saved_is_ended(monkeypatch):
    monkeypatch.setattr(supervisor, "SECONDS_TO_SAVE", 600.0)
    saved = "labs: error: rank 0: asked to stop, and saved after epoch 3"
    script = f"trap 'echo {saved} >&2' USR1; echo ready; while true; do sleep 0.1; done"

    class Interrupts(io.StringIO):
        def write(self, text: str) -> int:
            threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGTERM]).start()
            return super().write(text)

    evidence = failure.Evidence(60)
    with ends(60), pytest.raises(KeyboardInterrupt):
        supervisor.supervise(["bash", "-c", script], os.environ, Interrupts(), evidence, is_mpirun=True)
    assert evidence.error.startswith("rank 0: asked to stop")


@pytest.mark.slow
def test_a_launcher_that_hangs_after_its_workers_have_finished_is_ended_without_an_error(monkeypatch):
    monkeypatch.setattr(supervisor, "SECONDS_AFTER_WORKERS", 1.0)
    lines = "".join(line(0, alive) for alive in (1, 0))
    evidence = failure.Evidence(60)
    with ends(60):
        code = supervisor.supervise(["bash", "-c", 'printf %s "$0" >&2; sleep 600', lines], os.environ, None, evidence,
                                    is_mpirun=True)
    assert (code, evidence.error) == (0, "")


FLOODED = """
import os, sys
from labs.launch import failure, supervisor
for _ in range(4):
    try:
        code = "trap 'exit 3' USR1; echo ready; while true; do sleep 0.02; done"
        supervisor.supervise(["bash", "-c", code], os.environ, sys.stdout, failure.Evidence(60), is_mpirun=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.slow
def test_many_signals_at_once_are_one_request_and_leave_no_lock_held():
    """A signal that raises anywhere can leave the lock of Popen.wait held, and the next wait never returns."""
    program = subprocess.Popen([sys.executable, "-c", FLOODED], stdout=subprocess.PIPE, text=True)
    with ends(120):
        for line in program.stdout:
            for _ in range(40 * (line == "ready\n")):
                program.send_signal(signal.SIGINT)
                program.send_signal(signal.SIGINT)
            ended = line
        assert (program.wait(), ended) == (0, "interrupted\n")


IMPATIENT = """
import os, sys
from labs.launch import failure, supervisor
supervisor.SECONDS_TO_SAVE = 600.0
code = "trap '' USR1; echo ready; while true; do sleep 0.1; done"
supervisor.supervise(["bash", "-c", code], os.environ, sys.stdout, failure.Evidence(60), is_mpirun=True)
"""


@pytest.mark.slow
def test_ctrl_c_again_and_again_does_not_wait_for_workers_that_do_not_save():
    program = subprocess.Popen([sys.executable, "-c", IMPATIENT], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL)
    with ends(60):
        assert program.stdout.readline() == "ready\n"
        while program.poll() is None:
            program.send_signal(signal.SIGINT)
            time.sleep(0.5)
