"""Grade a folder of hand-ins: a table of points, feedback for each student, a page on the class."""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from labs.run import atomic, terminal, usage
from labs.run.errors import LabError
from labs.run.paths import shown
from labs.run.text import plural
from labs.tools.grade import confinement, evidence, judge, pages, policy
from labs.tools.grade.judge import Graded

CONFINED = ("functions are not judged: {}. Grade on another Linux computer, or with --unsafe if your students may read "
            "every file that you can read")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs grade`."""
    parser.description = ("Grade all hand-ins (`labs handin`) below a folder: questions from the records in them, "
                          "functions in a process that can only compute. Needs no TensorFlow.")
    parser.add_argument("folder", type=usage.path, metavar="FOLDER", help="the folder with the zips")
    parser.add_argument("--for", dest="form", choices=("plain", "moodle", "canvas"), default="plain",
                        help="the columns of grades.csv; plain has everything")
    parser.add_argument("--policy", type=usage.path, default=policy.DEFAULT,
                        help="points and lateness; default: grading/policy.toml")
    parser.add_argument("--output", type=usage.path, help="the folder to write; default: graded in FOLDER")
    parser.add_argument("--unsafe", action="store_true",
                        help="call functions even if this computer cannot hide files from them")


def main(args: argparse.Namespace) -> None:
    """Grade the hand-ins, write the files, and print where they are."""
    output = args.output or args.folder / "graded"
    rules = policy.read(args.policy)
    paths = sorted(path for path in args.folder.rglob("*.zip") if path.is_file() and not path.is_symlink())
    if not paths:
        raise LabError(f"{args.folder} has no zip; `labs handin LAB` writes one")
    if lacks := confinement.missing(args.unsafe):
        terminal.note(CONFINED.format(lacks))
    how = functools.partial(judge.judge, policy=rules, unsafe=args.unsafe)
    with terminal.ticking(f"labs: grading {plural(len(paths), 'hand-in')},"):
        graded, replaced = _newest([_named(each, args.folder) for each in _each(how, paths)])
    copies = evidence.copies([(each.student, each.clocks) for each in graded])
    with usage.writing_to("--output"):
        _write(output, graded, copies, replaced, args.form)
    bad = sum(bool(each.problem) for each in graded)
    print(f"{plural(len(graded), 'hand-in')}, {bad} not graded, {plural(len(copies), 'student')} with equal records")
    print(f"{shown(output.absolute())}: grades.csv, class.md, feedback/ (for students), open-answers/ (not for them)")


def _each(how: Callable[[Path], Graded], paths: Sequence[Path]) -> Iterator[Graded]:
    """Yield the hand-ins as they are graded, on all processors; one that ends a process is graded alone."""
    spawn = multiprocessing.get_context("spawn")
    workers = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    with concurrent.futures.ProcessPoolExecutor(min(workers, len(paths)), spawn) as pool:
        futures = [pool.submit(how, path) for path in paths]
    for path, future in zip(paths, futures, strict=True):
        if isinstance(future.exception(), BrokenProcessPool):
            with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
                future = pool.submit(how, path)
        ended = isinstance(future.exception(), BrokenProcessPool)
        yield Graded(str(path), "", "", "it ended the grader's process") if ended else future.result()


def _named(each: Graded, folder: Path) -> Graded:
    """Return a hand-in with its name below the folder, which is the student's id if there is no other."""
    file = str(Path(each.file).relative_to(folder))
    return dataclasses.replace(each, file=file, student=each.student or file)


def _newest(graded: Sequence[Graded]) -> tuple[list[Graded], list[str]]:
    """Return the newest hand-in of each student and lab, and a line on each other one."""
    newest: dict[tuple[str, str], Graded] = {}
    replaced = []
    for each in sorted(graded, key=lambda each: (not each.problem, each.created)):
        if earlier := newest.get((each.student, each.lab)):
            replaced.append(f"{earlier.file}: replaced by {each.file}, which is newer")
        newest[each.student, each.lab] = each
    return sorted(newest.values(), key=lambda each: (each.student, each.lab)), replaced


def _write(output: Path, graded: Sequence[Graded], copies: dict[str, list[str]], replaced: Sequence[str],
           form: str) -> None:
    for folder in ("feedback", "open-answers"):
        (output / folder).mkdir(parents=True, exist_ok=True)
    atomic.write_text(output / "grades.csv", pages.table(graded, copies, form))
    atomic.write_text(output / "class.md", pages.class_page(graded, copies, replaced))
    for each in (each for each in graded if each.student != each.file):
        atomic.write_text(output / "feedback" / f"{each.lab}-{each.student}.md", pages.feedback(each))
    for lab, text in pages.open_answers(graded):
        atomic.write_text(output / "open-answers" / f"{lab}.md", text)
