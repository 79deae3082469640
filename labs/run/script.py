"""A worker of `labs launch`: runs a student's script as `python SCRIPT` would, and prints in one line why it failed."""

import atexit
import os
import runpy
import socket
import sys
import traceback
from pathlib import Path

from labs.run import heartbeat, worker
from labs.run.paths import ROOT

NOT_THE_STUDENTS = tuple(f"{folder}{os.sep}" for folder in (sys.prefix, ROOT / "labs", ROOT / "horovod_keras3"))
"""Folders of packages, which may lie below the folder of a student's script."""


def main() -> None:
    """Run the script that the first argument names."""
    worker.end_with_launcher()
    sys.argv = sys.argv[1:]
    script = sys.argv[0]
    folder = os.path.dirname(os.path.abspath(script))
    sys.path.insert(0, folder)
    if heartbeats := os.environ.get(heartbeat.OWN_SCRIPT):  # A frozen rank sends none.
        beats = heartbeat.begin(Path(heartbeats), heartbeat.rank(), 0, socket.gethostname(), is_lab=False)
        atexit.register(beats.close)
    try:
        runpy.run_path(script, run_name="__main__")
    except BaseException as problem:
        if isinstance(problem, SystemExit) and not problem.code:
            raise
        trace = problem.__traceback__
        while trace and trace.tb_frame.f_code.co_filename != script:  # The frames of this file and of runpy.
            trace = trace.tb_next
        own = [frame for frame in traceback.extract_tb(trace) if frame.filename == script or
               (frame.filename.startswith(folder + os.sep) and not frame.filename.startswith(NOT_THE_STUDENTS))]
        line = (f"{os.path.basename(own[-1].filename)}, line {own[-1].lineno}" if own
                else f"the start or the end of {os.path.basename(script)}")
        worker.leave(problem.with_traceback(trace), f"rank {heartbeat.rank()} on {socket.gethostname()}: ",
                     f"waited at {line} for another rank (--stall-seconds), or a rank has ended; "
                     "let all ranks take the same number of steps")


if __name__ == "__main__":
    main()
