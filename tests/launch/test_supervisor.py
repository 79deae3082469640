"""Programs under supervision: their outcome in one line, and none of their processes is left."""

import subprocess
import sys
import time

import psutil
import pytest

from labs.run import supervisor
from tests.waiting import ends


@pytest.mark.parametrize(("script", "code", "cause"), [
    ("echo note >&2; echo 'ValueError: no' >&2; echo trailer >&2; exit 3", 3, "ValueError: no"),
    ("exit 3", 3, "exited with code 3 and printed nothing"),
    ("kill -KILL $$", -9, "was killed by SIGKILL"),
], ids=["error line", "silent", "killed"])
def test_the_outcome_of_a_program(script, code, cause):
    outcome = supervisor.complete(["bash", "-c", script], 60)
    assert (outcome.code, outcome.cause) == (code, cause)


@pytest.mark.slow
def test_a_program_past_its_time_limit_ends_with_all_that_it_started(tmp_path):
    note = tmp_path / "pids"
    # The child ignores the signal that ends its parent, as a worker that hangs in a library may.
    child = f"trap \"\" TERM; echo $$ >> {note}; sleep 60 & echo $! >> {note}; wait"
    assert supervisor.complete(["bash", "-c", f"echo $$ > {note}; bash -c '{child}'"], 2).code is None
    pids = [int(pid) for pid in note.read_text().split()]
    assert len(pids) == 3
    _, left = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], 10)
    assert not [each for each in left if each.status() != psutil.STATUS_ZOMBIE]


PROGRAM = """
import os, sys
from labs.run import failure, supervisor
supervisor.SECONDS_TO_SAVE = 600.0
for _ in range(3):
    try:
        supervisor.supervise(["bash", "-c", sys.argv[1]], os.environ, sys.stdout, failure.Diagnosis(), is_mpirun=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
WAIT = "echo ready; while true; do sleep 0.02; done"


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [
    f"trap 'exit 3' USR1; {WAIT}",
    f"trap 'echo labs: error: rank 0: asked to stop, and saved after epoch 3 >&2' USR1; {WAIT}",
    f"trap '' USR1; {WAIT}",
], ids=["it ends", "its workers save, but it hangs", "its workers do not save"])
def test_requests_end_a_launcher_and_leave_no_lock_held(launcher):
    """Many signals at once are one request; one that raised anywhere could leave the lock of Popen.wait held."""
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, launcher], stdout=subprocess.PIPE, text=True)
    with ends(120):
        for _ in range(3):
            assert program.stdout.readline() == "ready\n"
            for _ in range(80):
                program.send_signal(2)
            if "''" in launcher:
                time.sleep(1.5)
                program.send_signal(2)
            assert program.stdout.readline() == "interrupted\n"
        assert program.wait() == 0
