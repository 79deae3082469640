"""A lock file: one process holds it, its note names the holder, and a killed holder leaves nothing held."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest
from filelock import Timeout

from labs.run.lock import Lock
from labs.run.paths import ROOT

HOLDS = """
import signal, sys
from pathlib import Path
from labs.run.lock import Lock
lock = Lock(Path(sys.argv[1]))
with lock.hold():
    lock.sign()
    print("held", flush=True)
    signal.pause()
"""


def test_a_lock_is_held_by_one_process_until_its_death(tmp_path):
    lock = Lock(tmp_path / "it.lock")
    assert not lock.is_held(), "there is no file yet"
    assert lock.holder() == "another process"
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, lock.path], stdout=subprocess.PIPE, text=True,
                              env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert holder.stdout.readline() == "held\n"
    assert lock.is_held()
    assert (tmp_path / "it.holder").read_text() == lock.holder() == f"process {holder.pid} on {socket.gethostname()}"
    with pytest.raises(Timeout), lock.hold(0.1):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert not lock.is_held()
    with lock.hold():
        lock.sign()
        assert lock.holder() == f"process {os.getpid()} on {socket.gethostname()}"
