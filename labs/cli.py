"""The command `labs`.

    labs list                                 the labs of this clone
    labs run LAB [--workers N] [options]      run a lab; `labs run LAB --help` shows its options
    labs data list                            the data sets, and which of them are here
    labs data fetch NAME                      download one, resumably, and check it
    labs data verify NAME                     check one that is here
    labs results [LAB]                        the runs in the results store

The options of a lab come from its Config. Without --workers a run has one worker per visible GPU, else one; inside a
Slurm allocation, its tasks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from labs.errors import LabError


def main() -> None:
    """Do what the command line says; a student's mistake is told in one line."""
    try:
        sys.exit(_dispatch(sys.argv[1:]))
    except LabError as problem:
        sys.exit(f"labs: error: {problem}")
    except KeyboardInterrupt:
        print("labs: interrupted; `--resume` goes on from the last epoch", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # `labs list | head` is no error.


def _dispatch(arguments: Sequence[str]) -> int:
    commands = {"list": _list, "run": _run, "data": _data, "results": _results}
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(__doc__.strip())
        return 0
    if arguments[0] not in commands:
        raise LabError(f"no command is called {arguments[0]!r}; there are: {', '.join(commands)} (labs --help)")
    return commands[arguments[0]](list(arguments[1:])) or 0


def _parser(command: str, description: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(f"labs {command}", description=description, allow_abbrev=False)


def _list(arguments: list[str]) -> None:
    from labs import command

    _parser("list", "Show the labs of this clone.").parse_args(arguments)
    for name in command.names():
        print(f"{name:18} {command.find(name).__doc__.splitlines()[0].partition(': ')[2]}")


def _run(arguments: list[str]) -> None:
    """Split off what concerns the launch; all else is the lab's own and is checked by it."""
    from labs import command
    from labs.launch import local

    parser = _parser("run", "Run a lab on several workers. All other options are the lab's: labs run LAB --help")
    parser.add_argument("lab", help="its name, or the beginning of it: lab10")
    parser.add_argument("--workers", type=int, help="how many; default: the allocation's tasks, or one per GPU, or one")
    parser.add_argument("--oversubscribe", action="store_true", help="allow more workers than cores")
    if not arguments or arguments[0] in ("-h", "--help"):
        parser.print_help()
        return
    if arguments[0].startswith("-"):
        there = ", ".join(command.names())
        raise LabError(f"name the lab first: labs run LAB {' '.join(arguments)}; there are: {there}")
    helps = [word for word in arguments if word in ("-h", "--help")]  # The lab's help, not that of the launch.
    asked, rest = parser.parse_known_args([word for word in arguments if word not in helps])
    local.run(asked.lab, rest + helps, asked.workers, asked.oversubscribe)


def _data(arguments: list[str]) -> None:
    from labs.datasets import fetch, registry

    parser = _parser("data", "The data sets of the labs.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="list | fetch | verify")
    actions.add_parser("list", help="show them all, and which are here")
    for action, text in (("fetch", "download one and check it"), ("verify", "check one that is here")):
        actions.add_parser(action, help=text).add_argument("name", help=", ".join(registry.DATASETS))
    asked = parser.parse_args(arguments)
    if asked.action == "list":
        print(fetch.listing())
    elif asked.action == "fetch":
        print(f"{asked.name}: {fetch.fetch(asked.name)}")
    else:
        print(fetch.verify(asked.name))


def _results(arguments: list[str]) -> None:
    from labs.report import records

    parser = _parser("results", "Show the runs in the results store, oldest first.")
    parser.add_argument("lab", nargs="?", default="*", help="of this lab alone")
    runs = records.load(parser.parse_args(arguments).lab)
    if runs.empty:
        raise LabError("the results store is empty; `labs run lab10_caltech --workers 2` fills it")
    columns = ["lab", "run", "size", "nodes", "batch_size", "images_per_sec", "seconds_per_epoch", "test_accuracy"]
    print(runs[[column for column in columns if column in runs]].to_string(index=False))
