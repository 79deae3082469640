"""`labs launch N SCRIPT [ARGS]`: run a student's own script on several workers."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from labs.launch import failure, mpirun, supervisor
from labs.run import usage
from labs.run.errors import ERROR_PREFIX, LabError, quoted
from labs.run.options import LAUNCH, Options
from labs.run.paths import ROOT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the number of workers, the script and its arguments."""
    parser.description = ("Run your own script on N workers, each with this environment's Python. If one fails, all "
                          "end, and the last line names the cause. Ctrl-C ends all workers.")
    parser.add_argument("--oversubscribe", action="store_true", help=LAUNCH["oversubscribe"])
    parser.add_argument("--stall-seconds", type=usage.number, metavar="FLOAT", default=Options.stall_seconds,
                        help="end the script when all ranks have waited for each other for this many seconds, or when "
                             "some have waited ten times as long for one that works (default: %(default)s)")
    parser.add_argument("workers", type=usage.count, metavar="N", help="number of workers")
    parser.add_argument("script", type=usage.path, metavar="SCRIPT", help="the script: a Python file that uses Horovod")
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="arguments of the script")
    rest.required = False


def main(args: argparse.Namespace) -> int:
    """Run the script and return the exit code: that of the first worker that failed, or 0."""
    _refuse(args.script, args.workers)
    try:
        workers = mpirun.choose_workers(args.workers, args.oversubscribe)
    except LabError as problem:  # Options after N belong to the script.
        here = f"start with: labs launch --oversubscribe {args.workers}"
        raise LabError(str(problem).replace("add --oversubscribe", here)) from None
    env = {**mpirun.environment(), **mpirun.supervision(),
           **failure.horovod_stall_check(args.stall_seconds)}
    # TensorFlow: by default each worker would start a thread for every core.
    env.setdefault("TF_NUM_INTRAOP_THREADS", str(max(1, mpirun.slots() // workers)))
    program = [*mpirun.PYTHON, "-m", "labs.launch.script", str(args.script), *args.arguments]
    evidence = failure.Evidence(args.stall_seconds, own_script=True)
    code = supervisor.supervise([*mpirun.command(workers, env), *program], env, None, evidence, is_mpirun=True,
                                saves=False)
    if code or evidence.error:  # mpirun may end with 0 when it is terminated.
        code = code or 1
        print(f"{ERROR_PREFIX}{evidence.cause(code, Path(os.devnull))}", file=sys.stderr)
    return 128 - code if code < 0 else code


def _refuse(script: Path, workers: int) -> None:
    """Refuse a script that is not a file.

    Raises:
        LabError: The script is not a file; the message says what it is and what to type.
    """
    if script.is_file():
        return
    if script.is_dir():
        raise LabError(f"{quoted(str(script))} is a folder; name the script in it")
    if script.name.startswith("python"):
        raise LabError(f"leave {quoted(str(script))} out: labs launch {workers} SCRIPT uses this environment's Python")
    similar = usage.suggestion(script.name, [path.name for path in script.parent.glob("*.py")])
    kit = f"; cd {shlex.quote(str(ROOT))} first" if (ROOT / script).is_file() else ""
    raise LabError(f"there is no file {quoted(str(script))}{kit or similar or '; is the script in another folder?'}")
