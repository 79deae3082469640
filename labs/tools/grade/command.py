"""Grade a folder of hand-ins: a table of points, feedback for each student, a page on the class."""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from labs.exercises import hand_ins
from labs.run import atomic, usage
from labs.run.errors import LabError
from labs.run.paths import format_path
from labs.run.text import plural
from labs.tools.grade import container, evidence, judge, pages, policy
from labs.tools.grade.judge import Graded

ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs grade`."""
    parser.description = ("Grade all hand-ins (`labs handin`) below a folder: questions from the records in them, "
                          "functions in a container without a network and other files. Needs no TensorFlow.")
    parser.add_argument("folder", type=usage.path, metavar="FOLDER", help="the folder with the hand-ins")
    parser.add_argument("--policy", type=usage.path, default=policy.DEFAULT,
                        help="points and lateness; default: grading/policy.toml")
    parser.add_argument("--output", type=usage.path, help="the folder to write; default: graded in FOLDER")
    parser.add_argument("--trust", action="store_true",
                        help="run the students' functions without a container: they can do whatever you can")


def main(args: argparse.Namespace) -> None:
    """Grade the hand-ins, write the files, and print where they are."""
    output = args.output or args.folder / "graded"
    rules = policy.read(args.policy)
    paths, others = find(args.folder, {output.resolve(), (args.folder / "graded").resolve()})
    if not paths:
        raise LabError(f"{args.folder} has no hand-in; `labs handin LAB` writes one")
    where = None if args.trust else container.command()
    every = list(map(judge.read, paths))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        judged = pool.map(lambda each: judge.judge(each, rules, where), every)
        every = list(tqdm(judged, "grading", len(every), unit="hand-in", leave=False, disable=None))
    graded, conflicts = _settle(every, args.folder)
    copies = evidence.copies([each.hand_in for each in graded if each.hand_in and not each.problem])
    _write(output, graded, copies, conflicts, others)
    bad = sum(bool(each.problem) for each in graded)
    sharing = {student for students, _ in copies for student in students} - {evidence.KIT}
    print(f"{plural(len(graded), 'hand-in')}, {bad} not graded; {plural(len(others), 'other file')}; "
          f"{plural(len(sharing), 'student')} with something in common")
    print(f"{format_path(output.absolute())}: grades.csv, class.md, feedback/ (for students), "
          "open-answers/ (not for them)")


def find(folder: Path, left_out: set[Path]) -> tuple[list[Path], list[str]]:
    """Return the hand-ins below a folder, archives and unpacked ones, and the names of all other files."""
    paths, others = [], []
    for parent, folders, names in os.walk(folder):
        here = Path(parent)
        folders[:] = sorted(name for name in folders if (here / name).resolve() not in left_out)
        if hand_ins.MANIFEST in names and here != folder:
            paths.append(here)
            folders.clear()
            continue
        for path in (here / name for name in names):
            is_archive = path.suffix.lower() in ARCHIVES and not path.is_symlink()
            paths += [path] * is_archive
            others += [path.relative_to(folder).as_posix()] * (not is_archive)
    return paths, sorted(others)


def _settle(graded: Sequence[Graded], folder: Path) -> tuple[list[Graded], list[str]]:
    """Return the hand-ins, named as below the folder, and a line on each group of one student and lab.

    A copy of a hand-in is left out. Where two differ, neither has points.
    """
    groups: dict[tuple[str, ...], list[Graded]] = defaultdict(list)
    result, lines = [], []
    for each in graded:
        file = Path(each.file).relative_to(folder).as_posix()
        group = groups[each.student, each.lab, file * bool(each.problem)]
        same = [other.file for other in group if other.hand_in == each.hand_in]
        lines += [f"{file}: the same as {name}" for name in same]
        group += [dataclasses.replace(each, file=file, student=each.student or file)] * (not same)
    for (student, lab, _), group in groups.items():
        if len(group) > 1:
            lines.append(f"{student}, {lab}: " + " and ".join(map(_describe, group)))
            files = ", ".join(each.file for each in group)
            problem = f"{student} has more than one hand-in: {files}; remove all but one, and grade again"
            group = [dataclasses.replace(each, problem=problem) for each in group]
        result += group
    return sorted(result, key=lambda each: (bool(each.problem), each.student, each.lab)), lines


def _describe(each: Graded) -> str:
    packed = each.hand_in.manifest.created if each.hand_in else ""
    return f"{each.file} ({each.points:g} of {each.of:g} points, packed {packed})"


def _write(output: Path, graded: Sequence[Graded], copies: pages.Copies, conflicts: Sequence[str],
           others: Sequence[str]) -> None:
    for folder in ("feedback", "open-answers"):
        (output / folder).mkdir(parents=True, exist_ok=True)
    atomic.write_text(output / "grades.csv", pages.table(graded, copies))
    atomic.write_text(output / "class.md", pages.class_page(graded, copies, conflicts, others))
    right = [each for each in graded if each.hand_in and not each.problem]
    for each in right:
        atomic.write_text(output / "feedback" / f"{each.lab}-{each.student}.md", pages.feedback(each))
    for lab in {each.lab for each in right}:
        atomic.write_text(output / "open-answers" / f"{lab}.md", pages.open_page(lab, right))
