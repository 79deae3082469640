"""A worker of `labs launch`: runs a student's script as `python SCRIPT` would, and prints in one line why it failed.

    python -P -m labs.launch.script SCRIPT [ARGS]
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
from types import TracebackType

from labs.run import heartbeat, stop, worker


def main() -> None:
    """Run the script that the first argument names."""
    stop.end_with_launcher()
    sys.argv = sys.argv[1:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except BaseException as problem:
        if isinstance(problem, SystemExit) and not problem.code:
            raise
        here = heartbeat.error_prefix() or f"rank {heartbeat.rank()} on {socket.gethostname()}: "
        worker.leave(problem.with_traceback(_of_script(problem.__traceback__)), here)


def _of_script(frames: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of this file and of runpy."""
    while frames and frames.tb_frame.f_code.co_filename in (__file__, runpy.__file__, f"<frozen {runpy.__name__}>"):
        frames = frames.tb_next
    return frames


if __name__ == "__main__":
    main()
