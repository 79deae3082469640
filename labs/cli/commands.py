"""The command `labs`: finds a subcommand, runs it, and prints the last line of one that fails.

A subcommand is two functions: one adds its arguments to a parser, the other runs it and returns its exit code, or None
for 0. What it needs is imported when it is called: `labs check` has to run where no package is installed.
"""

import argparse
import contextlib
import importlib
import os
import shlex
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from labs.run import atomic, catalogue, command_line, environment, errors, paths
from labs.run.errors import ERROR_PREFIX, LabError, plural, printable, quoted
from labs.run.fields import Options

SUMMARIES = {
    "run": "run a lab on one or more workers",
    "launch": "run your own script on several workers",
    "sweep": "start, or continue, all runs that a lab's questions need",
    "data": "list and download data sets",
    "results": "show finished runs as a table, or write them to a CSV file",
    "report": "write all results as one HTML page",
    "lint": "find implausible figures in your results, or in a table typed by hand",
    "watch": "show the progress of a run",
    "check": "check whether this machine can run the labs",
    "notebook": "open the notebooks in JupyterLab",
    "cluster": "make a cluster inside this machine",
    "queue": "explain why your Slurm jobs wait",
    "handin": "pack a lab's answers, notebook and records as one zip",
    "grade": "for instructors: grade a folder of hand-ins",
}
LAB = "name or number of a lab: lab10_caltech, lab10, 10"
TAKE_LAB_OPTIONS = ("run", "sweep")  # They pass options that they do not know on to the lab.
HELP = """Train on several GPUs with TensorFlow, Keras and Horovod; measure the speedup.

usage: labs COMMAND ...

{}

A lab is named by its name or number: lab10_caltech, lab10, 10. Without --workers, a run
has one worker per task of a Slurm job, else one per visible GPU, else one."""


def main() -> None:
    """Run the command line; report a user's mistake in one line."""
    environment.hide_warnings()
    try:
        sys.exit(dispatch(sys.argv[1:]))
    except KeyboardInterrupt as stopped:
        cure = {"sweep": "; the same command continues", "run": f"; to continue, add {stopped}" if str(stopped) else ""}
        with contextlib.suppress(OSError):  # The terminal has been closed.
            print(f"labs: interrupted{cure.get(''.join(sys.argv[1:2]), '')}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # `labs results | head` is not an error; 141 is what SIGPIPE gives.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it at exit.
        sys.exit(141)
    except (LabError, OSError) as problem:
        if not isinstance(error := errors.explain_os_error(problem), LabError):
            raise
        sys.exit(f"{ERROR_PREFIX}{errors.one_line(error)}")


def dispatch(words: Sequence[str]) -> int:
    """Run one subcommand, the words after `labs`, and return its exit code."""
    if not words or words[0] in ("-h", "--help", "help"):
        rows = "\n".join(f"  {name:11}{summary}" for name, summary in summaries().items())
        print(HELP.format(rows) if words else _labs())
        return 0
    command, *rest = words
    add_arguments, run = _find(command)
    # `labs run LAB --help` is about the lab.
    parser = command_line.Parser(f"labs {command}", description=SUMMARIES[command],
                                 add_help=command != "run" or len(rest) < 2)
    add_arguments(parser)
    if command in TAKE_LAB_OPTIONS and len(rest) > 1 and rest[0].startswith("-"):
        # Until the lab is known, the word after an option could be its value or the lab.
        parser.error(f"name the lab first: labs {command} LAB {shlex.join(rest)}")
    args, unknown = parser.parse_known_args(rest)
    if unknown and command not in TAKE_LAB_OPTIONS:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    args.parser, args.typed, args.lab_options = parser, rest, unknown
    return run(args) or 0


def _find(command: str) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int | None]]:
    if command not in summaries():
        similar = command_line.suggestion(command, summaries())
        raise LabError(f"unknown command {quoted(command)}{similar}; there are: {', '.join(summaries())}")
    if command in COMMANDS:
        return COMMANDS[command]
    module = importlib.import_module("labs.cli.sweep" if command == "sweep" else f"labs.tools.{command}.command")
    return module.add_arguments, module.main


def summaries() -> dict[str, str]:
    """Return the subcommands, each with its line in `labs --help`; any tool's folder may be missing."""
    tools = {path.parent.name for path in Path(__file__).parents[1].glob("tools/*/command.py")}
    return {name: summary for name, summary in SUMMARIES.items() if name in {*COMMANDS, "sweep", *tools}}


def _labs() -> str:
    titles = {name: catalogue.load_lab(name).title.partition(": ")[2] for name in catalogue.lab_names()}
    rows = [textwrap.fill(f"{name:19}{title}", 80, subsequent_indent=" " * 19) for name, title in titles.items()]
    return "\n".join(rows) + "\n\nlabs run LAB --help   a lab's options\nlabs --help           all commands"


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lab", metavar="LAB", help=f"{LAB}; `labs run LAB --help` shows its options")
    parser.add_argument("--workers", type=command_line.count, metavar="N",
                        help="number of workers; by default one per task in a Slurm job, else one per GPU, else one")
    command_line.add_oversubscribe(parser)


def _run(args: argparse.Namespace) -> None:
    from labs.datasets import registry
    from labs.run import local

    lab = catalogue.load_lab(args.lab)
    config, options = command_line.parse(lab, args.lab_options)
    if not options.resume:
        registry.check_data(lab, config)
    local.run(lab, args.lab_options, args.workers, args.oversubscribe, announce=True)
    root = ["--results", str(options.results)] if options.results else []
    labs = "labs" if shutil.which("labs") else str(Path(sys.executable).with_name("labs"))
    print(f"\nNext: {shlex.join([labs, 'report', *root])}")


def _add_launch(parser: argparse.ArgumentParser) -> None:
    command_line.add_oversubscribe(parser)
    parser.add_argument("--stall-seconds", type=float, metavar="FLOAT", default=Options.stall_seconds,
                        help="when ranks wait this long, warn; end after twice as long (default: %(default)s)")
    parser.add_argument("workers", type=command_line.count, metavar="N", help="number of workers")
    parser.add_argument("script", type=command_line.path, metavar="SCRIPT", help="a Python file that uses Horovod")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="arguments of the script")


def _launch(args: argparse.Namespace) -> int:
    """Run the script and return the exit code: that of the first worker that failed, or 0."""
    from labs.run import failure, heartbeat, mpirun, supervisor

    if not args.script.is_file():
        raise LabError(f"there is no file {quoted(str(args.script))} in this folder; give the path of your script")
    workers = mpirun.choose_workers(args.workers, args.oversubscribe)
    # Horovod: it warns of ranks that wait for others, and ends them later.
    seconds = max(1, round(args.stall_seconds))
    env = {**mpirun.environment(), "HOROVOD_STALL_CHECK_TIME_SECONDS": str(seconds),
           "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(2 * seconds)}
    # TensorFlow: by default each worker would start a thread for every core.
    env.setdefault("TF_NUM_INTRAOP_THREADS", str(max(1, mpirun.slots() // workers)))
    program = [*mpirun.PYTHON, "-m", "labs.run.script", str(args.script), *args.arguments]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        here = Path(folder) if mpirun.nodes() == 1 else None  # Other nodes may not see it.
        env |= {heartbeat.OWN_SCRIPT: str(here / heartbeat.FOLDER)} if here else {}
        diagnosis = failure.Diagnosis(args.stall_seconds, here)
        code = supervisor.supervise([*mpirun.command(workers, env), *program], env, None, diagnosis, is_mpirun=True,
                                    saves=False)
    code = code or int(bool(diagnosis.error))  # mpirun may end with 0 when it is terminated.
    if code:
        print(f"{ERROR_PREFIX}{diagnosis.cause(code, None)}", file=sys.stderr)
    return 128 - code if code < 0 else code


def _add_data(parser: argparse.ArgumentParser) -> None:
    from labs.datasets import registry

    parser.add_argument("action", choices=("list", "fetch"))
    parser.add_argument("name", nargs="?", choices=tuple(registry.DATASETS), help="what to fetch")


def _data(args: argparse.Namespace) -> None:
    from labs.datasets import registry

    if args.action == "fetch" and not args.name:
        args.parser.error("name the data set: labs data fetch NAME")
    print(registry.listing() if args.action == "list" else f"{args.name}: {registry.fetch_dataset(args.name)}")


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lab", nargs="?", metavar="LAB", help=LAB)
    parser.add_argument("--csv", type=command_line.path, metavar="FILE", help="write all figures to a CSV file")
    parser.add_argument("--reference", metavar="NAME", help="show a set of reference runs, such as two-cores")


def _results(args: argparse.Namespace) -> None:
    from labs.results import tables

    runs = tables.load(args.lab, paths.results_dir(), args.reference)
    if args.csv:
        atomic.write_text(args.csv, runs.convert_dtypes().to_csv(index=False))
        print(f"{printable(args.csv)}: {plural(len(runs), 'run')}, {plural(len(runs.columns), 'column')}")
    else:
        print(tables.listing(runs))


def _add_handin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lab", metavar="LAB", help=LAB)
    parser.add_argument("--output", type=command_line.path, metavar="FOLDER", default=Path(),
                        help="where to write the zip; default: here")


def _handin(args: argparse.Namespace) -> None:
    from labs.exercises import hand_ins

    owner = environment.student_id()
    if not owner:
        raise LabError(f"{environment.STUDENT} is not set, so nobody would know whose hand-in it is; "
                       f"export {environment.STUDENT}=s1234 (your student number)")
    path, hand_in, missing = hand_ins.pack(args.lab, owner, args.output)
    packed = [*hand_in.answers, *["the notebook as you saved it"] * bool(hand_in.notebook),
              plural(len(hand_in.records), "record")]
    print(f"{path}: hand-in of {owner} for {hand_in.manifest.lab}", *packed, sep="\n  ")
    print("missing:" if missing else "nothing is missing", *map(printable, missing), sep="\n  ")


COMMANDS: dict[str, tuple[Callable, Callable]] = {
    "run": (_add_run, _run), "launch": (_add_launch, _launch), "data": (_add_data, _data),
    "results": (_add_results, _results), "handin": (_add_handin, _handin),
}
"""The functions of the subcommands of this module."""
