"""A run whose output is no longer read goes on."""

from __future__ import annotations

import contextlib
import os
import sys

from labs.launch import failure, supervisor
from tests.waiting import ends


def test_a_run_does_not_wait_for_a_reader_that_is_gone():
    """The output of its workers is still read: else they would block on a full pipe, and wait for each other."""
    program = [sys.executable, "-c", "for line in range(20_000): print('step', line)"]
    code = None
    with contextlib.suppress(OSError), open("/dev/full", "w") as full, ends(30):  # Closing it tries once more.
        code = supervisor.supervise(program, os.environ, full, failure.Evidence(), is_mpirun=False)
    assert code == 0
