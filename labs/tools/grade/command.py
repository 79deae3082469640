"""Grade a folder of hand-ins: a table of points, feedback for each student, a page on the class."""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from labs.exercises import hand_ins
from labs.results import listing, tables
from labs.run import atomic, usage
from labs.run.errors import LabError
from labs.run.paths import format_path
from labs.run.text import one_line, plural
from labs.tools.grade import container, evidence, judge
from labs.tools.grade.judge import BY_HAND, NO_ANSWER, RIGHT, WRONG, Graded

ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz")
STATUSES = (RIGHT, WRONG, NO_ANSWER, BY_HAND)
Copies = Sequence[tuple[Sequence[str], str]]
"""As `evidence.copies` returns them: the students, and a line."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs grade`."""
    parser.description = ("Grade all hand-ins (`labs handin`) below a folder: questions from the records in them, "
                          "functions in a container without a network and other files. Needs no TensorFlow.")
    parser.add_argument("folder", type=usage.path, metavar="FOLDER", help="the folder with the hand-ins")
    parser.add_argument("--policy", type=usage.path, default=judge.POLICY,
                        help="points and lateness; default: grading/policy.toml")
    parser.add_argument("--trust", action="store_true",
                        help="run the students' functions without a container: they can do whatever you can")


def main(args: argparse.Namespace) -> None:
    """Grade the hand-ins, write the files, and print where they are."""
    output, rules = args.folder / "graded", judge.read_policy(args.policy)
    paths, others = find(args.folder, output)
    if not paths:
        raise LabError(f"{args.folder} has no hand-in; `labs handin LAB` writes one")
    where = () if args.trust else container.command()
    every = _refuse_conflicts([judge.read(path, args.folder) for path in paths])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        judged = pool.map(lambda each: judge.judge(each, rules, where), every)
        graded = list(tqdm(judged, "grading", len(every), unit="hand-in", leave=False, disable=None))
    right = [each for each in graded if not each.problem]
    copies = evidence.copies([each.hand_in for each in right if each.hand_in])
    files = {"grades.csv": _table(graded, copies), "class.md": _class_page(graded, copies, others),
             **{f"feedback/{each.lab}-{each.student}.md": _feedback(each) for each in right},
             **{f"open-answers/{lab}.md": _open_page(lab, right) for lab in {each.lab for each in right}}}
    for name, text in files.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(output / name, text)
    sharing = {student for students, _ in copies for student in students} - {evidence.KIT}
    print(f"{plural(len(graded), 'hand-in')}, {len(graded) - len(right)} not graded; "
          f"{plural(len(others), 'other file')}; {plural(len(sharing), 'student')} with something in common")
    print(f"{format_path(output.absolute())}: grades.csv, class.md, feedback/ (for students), "
          "open-answers/ (not for them)")


def find(folder: Path, left_out: Path) -> tuple[list[Path], list[str]]:
    """Return the hand-ins below a folder, archives and unpacked ones, and the names of all other files."""
    paths, others = [], []
    for parent, folders, names in os.walk(folder):
        here = Path(parent)
        folders[:] = sorted(name for name in folders if here / name != left_out)
        if hand_ins.MANIFEST in names:
            paths.append(here)
            folders.clear()
            continue
        for path in (here / name for name in sorted(names)):
            is_archive = path.suffix.lower() in ARCHIVES and not path.is_symlink()
            paths += [path] * is_archive
            others += [path.relative_to(folder).as_posix()] * (not is_archive)
    return paths, others


def _refuse_conflicts(graded: Sequence[Graded]) -> list[Graded]:
    """Return the hand-ins; where two have the same student and lab, none of them has points."""
    files = defaultdict(list)
    for each in graded:
        files[each.student, each.lab].append(each.file)
    problem = "{} has more than one hand-in: {}; remove all but one, and grade again"
    return [each if len(same := files[each.student, each.lab]) == 1 else
            dataclasses.replace(each, problem=problem.format(each.student, ", ".join(same))) for each in graded]


# The pages.

def escape(text: object) -> str:
    """Return a hand-in's text as one short line of Markdown that shows it literally."""
    return tables.markdown(one_line(text))


def _table(graded: Sequence[Graded], copies: Copies) -> str:
    """Return all hand-ins as CSV, one per student and lab."""
    import pandas as pd

    def row(each: Graded) -> dict[str, object]:
        count = Counter(verdict.status for verdict in each.verdicts)
        points, of = ("", "") if each.problem else (f"{each.points:g}", f"{each.of:g}")
        return {"student": each.student, "lab": each.lab, "points": points, "of": of,
                "late_percent": f"{each.late_percent:g}", "right": count[RIGHT], "wrong": count[WRONG],
                "no_answer": count[NO_ANSWER], "not_judged": count[BY_HAND], "findings": len(each.findings),
                "copies": sum(each.student in shared for shared, _ in copies), "file": each.file,
                "problem": each.problem}

    return listing.csv(pd.DataFrame(map(row, graded)))


def _feedback(each: Graded) -> str:
    """Return a student's feedback as Markdown: each exercise, and what to explain; never a solution."""
    late = f", after {each.late_percent:g} % for lateness" if each.late_percent else ""
    lines = [f"# {each.lab}: {each.student}", "", f"{each.points:g} of {each.of:g} points{late}.", ""]
    for verdict in each.verdicts:
        lines.append(f"- **{verdict.exercise}**: {verdict.status} ({verdict.points:g} of {verdict.of:g}). "
                     + "\n  ".join(map(escape, verdict.text.split("\n"))))
    lines += ["", "The open questions are graded by a person.", ""]
    if each.findings:
        lines += _section("Please explain: these figures look odd", each.findings)
    return "\n".join(lines)


def _class_page(graded: Sequence[Graded], copies: Copies, others: Sequence[str]) -> str:
    """Return the page on the class as Markdown."""
    problems = [f"{each.file}: {each.problem}" for each in graded if each.problem]
    lines = ["# The class", "", f"{plural(len(graded), 'hand-in')}, {len(problems)} of them not graded.", ""]
    for lab in sorted({each.lab for each in graded if not each.problem}):
        lines += _exercises(lab, [each for each in graded if each.lab == lab and not each.problem])
    lines += _section("Not graded", problems)
    lines += _section("Files that are not hand-ins", others)
    lines += _section("Shared or copied? You decide", [line for _, line in copies])
    lines += _section("To explain", [f"{each.student}, {finding}" for each in graded for finding in each.findings])
    return "\n".join(lines)


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *(f"- {escape(line)}" for line in lines or ["none"]), ""]


def _exercises(lab: str, graded: Sequence[Graded]) -> list[str]:
    """Return a lab's exercises, those that most got wrong first."""
    count: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in (verdict for each in graded for verdict in each.verdicts):
        count[verdict.exercise][verdict.status] += 1
    rows = [[exercise, *(str(its[status]) for status in STATUSES)]
            for exercise, its in sorted(count.items(), key=lambda item: (item[1][RIGHT], item[0]))]
    return [f"## {lab}", "", tables.Grid("", ["exercise", *STATUSES], rows).markdown(), ""]


def _open_page(lab: str, graded: Sequence[Graded]) -> str:
    """Return what the students wrote about the open questions of a lab; solutions/rubric.md has the model answers."""
    written = {each.student: judge.open_answers(each.hand_in) for each in graded if each.hand_in and each.lab == lab}
    texts = (f"## {student}\n\n" + "\n".join(f"> {escape(line)}" for line in text.splitlines()) + "\n"
             for student, text in written.items() if text)
    return "\n".join([f"# Open questions of {lab}\n", *texts])
