"""A worker's program: `python -m labs.LAB` runs it in each process that the launcher starts."""

from __future__ import annotations

import importlib
import os
import sys
import time
import traceback
from collections.abc import Sequence

from labs.run import atomic, heartbeat, speed_settings, stop
from labs.run.catalogue import load_lab
from labs.run.command_line import parse_run
from labs.run.errors import ERROR_PREFIX, LabError, first_line, is_out_of_memory
from labs.run.text import one_line


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the lab whose module was started as the program, as one worker of its run."""
    stop.end_with_launcher()
    heartbeat.send_beats()
    speed_settings.hide_warnings()
    speed_settings.TensorFlowImport.hidden = speed_settings.UNUSED
    # `python -m` has loaded the module as __main__, where its name is lost.
    lab = load_lab(importlib.import_module(sys.modules["__main__"].__spec__.name))  # type: ignore[union-attr]
    try:
        config, options = parse_run(lab, sys.argv[1:] if arguments is None else arguments)
        os.environ.update(lab.environment)  # Before TensorFlow loads, which reads them.
        os.environ.pop("MPLBACKEND", None)  # An invalid one would fail when the curves are plotted, at the end.
        lab.run(config, options)
    except BaseException as problem:
        if isinstance(problem, SystemExit) and heartbeat.current() is None:
            raise  # --help.
        leave(atomic.explain_os_error(problem), heartbeat.error_prefix())


def leave(problem: BaseException, where: str, echoed: str = "stopped, since another worker has ended") -> None:
    """End this worker at once; its last line says which worker stopped, where and why.

    An ordinary exit would wait in Horovod's shutdown for workers that are waiting for this one. After an abrupt exit
    the launcher ends all of them.

    Args:
        problem: What was raised.
        where: The worker, and its place in the training.
        echoed: The cause if the error only says that another worker has ended.
    """
    problem = _explain_out_of_memory(problem)
    sys.stdout.flush()
    echo = is_secondary_failure(problem)
    if echo or heartbeat.rank() != 0:
        time.sleep(1.0)  # Rank 0 reports what all find at once, and the cause comes before its echoes.
    if not echo and not isinstance(problem, LabError | KeyboardInterrupt | SystemExit):
        traceback.print_exception(problem)
    cause = echoed if echo else _cause(problem)
    print(f"{ERROR_PREFIX}{one_line(where + cause)}", file=sys.stderr, flush=True)
    os._exit(_exit_code(problem))


def _exit_code(problem: BaseException) -> int:
    """Return the exit code that Python would give an exception."""
    if isinstance(problem, SystemExit):
        return (problem.code & 255 if isinstance(problem.code, int) else 1) or 1
    return 130 if isinstance(problem, KeyboardInterrupt) else 1


def is_secondary_failure(problem: BaseException) -> bool:
    """Return whether a worker's error only says that another worker has ended an exchange."""
    return "Horovod has been shut down" in str(problem) or "HorovodInternalError" in str(problem)


def _explain_out_of_memory(problem: BaseException) -> BaseException:
    """Return the error of a failed allocation, Python's or TensorFlow's, as a LabError, and any other unchanged."""
    if is_out_of_memory(problem):
        return LabError("out of memory; lower --batch-size, or ask for more (sbatch --mem); lab 6 shows what fits")
    return problem


def _cause(problem: BaseException) -> str:
    """Return an exception as one line."""
    first = first_line(problem)
    if isinstance(problem, LabError):
        return first
    if isinstance(problem, SystemExit):
        return f"exited before the run ended, with sys.exit({problem.code!r})"
    if isinstance(problem, KeyboardInterrupt):
        return str(problem) or "interrupted"
    return f"{type(problem).__name__}: {first}"
