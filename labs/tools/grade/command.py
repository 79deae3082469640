"""Grade a folder of hand-ins: a table of points, feedback for each student, a page on the class."""

import argparse
import concurrent.futures
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from labs.exercises import hand_ins
from labs.results import tables
from labs.run import atomic, command_line
from labs.run.errors import LabError, one_line, plural
from labs.run.paths import format_path
from labs.tools.grade import container, evidence, judge
from labs.tools.grade.judge import BY_HAND, NO_ANSWER, RIGHT, WRONG, Graded

ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz")
STATUSES = (RIGHT, WRONG, NO_ANSWER, BY_HAND)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs grade`."""
    parser.description = ("Grade all hand-ins (`labs handin`) below a folder: questions from the records in them, "
                          "functions in a container without a network and other files. Needs no TensorFlow.")
    parser.add_argument("folder", type=command_line.path, metavar="FOLDER", help="the folder with the hand-ins")
    parser.add_argument("--policy", type=command_line.path, default=judge.POLICY,
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
    every = [judge.read(path, args.folder) for path in paths]
    _refuse_conflicts(every)
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
    print(f"{plural(len(graded), 'hand-in')}, {len(graded) - len(right)} not graded; "
          f"{plural(len(others), 'other file')}; {len(copies)} shared by several students")
    print(f"{format_path(output.absolute())}: grades.csv, class.md, feedback/ (for students), "
          "open-answers/ (not for them)")


def find(folder: Path, left_out: Path) -> tuple[list[Path], list[str]]:
    """Return the hand-ins below a folder, archives and unpacked ones, and the names of all other files."""
    paths, others = [], []
    for parent, folders, names in os.walk(folder):
        here = Path(parent)
        folders.sort()
        unpacked = hand_ins.MANIFEST in names and here != folder  # A loose one must not hide the folders below it.
        if here == left_out or unpacked:
            paths += [here] * unpacked
            folders.clear()
            continue
        archives = {name for name in names if name.lower().endswith(ARCHIVES) and not (here / name).is_symlink()}
        paths += [here / name for name in sorted(archives)]
        others += [(here / name).relative_to(folder).as_posix() for name in sorted({*names} - archives)]
    return paths, others


def _refuse_conflicts(every: Sequence[Graded]) -> None:
    """Where two hand-ins have the same student and lab, give none of them points."""
    for each in every:
        files = [other.file for other in every if (other.student, other.lab) == (each.student, each.lab)]
        if len(files) > 1:
            each.problem = f"{each.student} has more than one: {', '.join(files)}; remove all but one, and grade again"


# The pages.

def _section(title: str, lines: Sequence[str]) -> list[str]:
    """Return a list in Markdown that shows the text of hand-ins literally."""
    return ["", f"## {title}", "", *(f"- {tables.markdown(one_line(line))}" for line in lines or ["none"])]


def _table(graded: Sequence[Graded], copies: Sequence[tuple]) -> str:
    """Return all hand-ins as CSV, one per student and lab."""
    rows = []
    for each in graded:
        count = Counter(verdict.status for verdict in each.verdicts)
        points, of = ("", "") if each.problem else (f"{each.points:g}", f"{each.of:g}")
        rows.append({"student": each.student, "lab": each.lab, "points": points, "of": of,
                     "late_percent": f"{each.late_percent:g}",
                     **{status.replace(" ", "_"): count[status] for status in STATUSES},
                     "findings": len(each.findings), "copies": sum(each.student in shared for shared, _ in copies),
                     "file": each.file, "problem": each.problem})
    return pd.DataFrame(rows).convert_dtypes().to_csv(index=False)


def _feedback(each: Graded) -> str:
    """Return a student's feedback as Markdown: each exercise, and what to explain; never a solution."""
    late = f", after {each.late_percent:g} % for lateness" if each.late_percent else ""
    lines = [f"# {each.lab}: {each.student}", "", f"{each.points:g} of {each.of:g} points{late}.",
             "The open questions are graded by a person."]
    lines += _section("Exercises", [f"{verdict.exercise}: {verdict.status} ({verdict.points:g} of {verdict.of:g}). "
                                    f"{verdict.text}" for verdict in each.verdicts])
    if each.findings:
        lines += _section("Please explain: these figures look odd", each.findings)
    return "\n".join([*lines, ""])


def _class_page(graded: Sequence[Graded], copies: Sequence[tuple], others: Sequence[str]) -> str:
    """Return the page on the class as Markdown; the exercises that most got wrong come first."""
    problems = [f"{each.file}: {each.problem}" for each in graded if each.problem]
    lines = ["# The class", "", f"{plural(len(graded), 'hand-in')}, {len(problems)} of them not graded.", ""]
    if verdicts := [verdict for each in graded for verdict in each.verdicts]:
        frame = pd.DataFrame(verdicts)
        counts = pd.crosstab(frame["exercise"], frame["status"]).reindex(columns=list(STATUSES), fill_value=0)
        lines += ["```text", counts.sort_values(RIGHT).to_string(), "```"]
    lines += _section("Not graded", problems)
    lines += _section("Files that are not hand-ins", others)
    lines += _section("Shared or copied? You decide", [line for _, line in copies])
    lines += _section("To explain", [f"{each.student}, {finding}" for each in graded for finding in each.findings])
    return "\n".join([*lines, ""])


def _open_page(lab: str, graded: Sequence[Graded]) -> str:
    """Return what the students wrote about the open questions of a lab; solutions/rubric.md has the model answers."""
    lines = [f"# Open questions of {lab}"]
    for each in graded:
        if each.lab == lab and each.written:
            lines += _section(each.student, each.written.splitlines())
    return "\n".join([*lines, ""])
