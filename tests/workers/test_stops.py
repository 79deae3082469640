"""Ctrl-Z and a stop from outside (Slurm, a container's freezer) stop the workers, too, and harm no healthy run."""

import os
import pty
import re
import subprocess
import sys
import time

import psutil

from tests.waiting import ends

LIMIT = 3
"""The run's --stall-seconds; Horovod's warning comes after as many, and the end after twice as many."""
LONGER = 2 * LIMIT + 1


def test_a_run_that_was_stopped_for_longer_than_any_limit_goes_on(tmp_path):
    """In a real terminal, with a real shell: Ctrl-Z, fg; then all processes are stopped as Slurm does."""
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(["bash", "--norc", "--noprofile", "-i"], stdin=theirs, stdout=theirs, stderr=theirs,
                             env=os.environ | {"PS1": "$ "}, preexec_fn=lambda: os.login_tty(theirs))
    os.close(theirs)
    shown = ""

    def wait_for(pattern: str) -> None:
        nonlocal shown
        while not (match := re.search(pattern, shown)):
            shown += os.read(ours, 65536).decode(errors="replace")
        shown = shown[match.end():]

    def type_and_wait_for_epochs(text: bytes) -> None:
        os.write(ours, text)
        for _ in range(10):
            wait_for(r"epoch (\d+)/999  ")

    try:
        with ends(200):
            command = f"{sys.executable} -m labs run lab10 --workers 2 --image-size 16 --batch-size 8 --epochs 999 " \
                      f"--name it --results {tmp_path} --stall-seconds {LIMIT}"
            os.write(ours, f"{command}\n".encode())
            wait_for(r"epoch 2/999  ")
            family = psutil.Process(shell.pid).children(recursive=True)
            workers = [each for each in family if "OMPI_COMM_WORLD_RANK" in each.environ()]

            os.write(ours, b"\x1a")
            wait_for("Stopped")
            time.sleep(LONGER)
            assert {process.status() for process in workers} == {psutil.STATUS_STOPPED}
            type_and_wait_for_epochs(b"fg\n")

            workers[1].suspend()  # First, so that the other waits for it when it is stopped, and when it continues.
            for process in family:
                process.suspend()
            time.sleep(LONGER)
            for process in sorted(family, key=workers[1].__eq__):
                process.resume()
            type_and_wait_for_epochs(b"fg\n")  # The shell has taken the stopped job off the terminal.

            os.write(ours, b"\x03")
            wait_for("labs: interrupted")
    finally:
        for process in [*psutil.Process(shell.pid).children(recursive=True), shell]:
            process.kill()
        os.close(ours)
