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
from labs.tools.grade import container, judge
from labs.tools.grade.judge import BY_HAND, NO_ANSWER, RIGHT, WRONG, Graded

ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz")
STATUSES = (RIGHT, WRONG, NO_ANSWER, BY_HAND)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs grade`."""
    parser.description = ("Grade all hand-ins (`labs handin`) below a folder: questions from the records in them, "
                          "functions in a container without a network and other files. Needs no TensorFlow.")
    parser.add_argument("folder", type=command_line.path, metavar="FOLDER", help="the folder with the hand-ins")
    parser.add_argument("--policy", type=command_line.path, default=judge.POLICY,
                        help="points; default: grading/policy.toml")
    parser.add_argument("--trust", action="store_true",
                        help="run the students' functions without a container: they can do whatever you can")


def main(args: argparse.Namespace) -> None:
    """Grade the hand-ins, write the files, and print where they are."""
    output, points = args.folder.absolute() / "graded", judge.read_points(args.policy)
    paths, others = find(args.folder.absolute(), output)
    if not paths:
        raise LabError(f"{args.folder} has no hand-in; `labs handin LAB` writes one")
    where = () if args.trust else container.command()
    every = [judge.read(path, output.parent) for path in paths]
    for each in every:
        files = [other.file for other in every if (other.student, other.lab) == (each.student, each.lab)]
        if len(files) > 1:
            each.problem = f"{each.student} has more than one: {', '.join(files)}; remove all but one, and grade again"
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        judged = pool.map(lambda each: judge.judge(each, points, where), every)
        graded = list(tqdm(judged, "grading", len(every), unit="hand-in", leave=False, disable=None))
    right = [each for each in graded if not each.problem]
    shared = judge.find_copies([each.hand_in for each in right if each.hand_in])
    texts = {"grades.csv": _table(graded, shared), "class.md": _class_page(graded, shared, others),
             **{f"feedback/{each.lab}-{each.student}.md": _feedback(each) for each in right},
             **{f"open-answers/{lab}.md": _page(f"Open questions of {lab}", **{
                 each.student: each.open_answers for each in right if each.lab == lab and each.open_answers})
                for lab in {each.lab for each in right}}}
    for name, text in texts.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(output / name, text)
    print(f"{plural(len(graded), 'hand-in')}, {len(graded) - len(right)} not graded; "
          f"{plural(len(others), 'other file')}; {len(shared)} shared by several students\n{format_path(output)}: "
          "grades.csv, class.md, feedback/ (for students), open-answers/ (not for them)")


def find(folder: Path, left_out: Path) -> tuple[list[Path], list[str]]:
    """Return the hand-ins below a folder, archives and unpacked ones, and the names of all other files."""
    # A loose manifest hides no folders.
    unpacked = {path.parent for path in folder.rglob(hand_ins.MANIFEST)} - {folder}
    files = [path for path in sorted(folder.rglob("*")) if not {left_out, *unpacked} & {*path.parents} and (
        path.is_symlink() or not path.is_dir())]
    archives = [path for path in files if path.name.lower().endswith(ARCHIVES) and not path.is_symlink()]
    return [*archives, *sorted(unpacked)], [
        path.relative_to(folder).as_posix() for path in files if path not in archives]


# The pages.

def _page(title: str, /, *lines: str, **sections: Sequence[str]) -> str:
    """Return a page in Markdown; its sections are lists that show the text of hand-ins literally."""
    page = [f"# {title}", "", *lines]
    for name, listed in sections.items():
        page += ["", f"## {name}", "", *(f"- {tables.markdown(one_line(line))}" for line in listed or ["none"])]
    return "\n".join([*page, ""])


def _table(graded: Sequence[Graded], shared: Sequence[tuple]) -> str:
    """Return all hand-ins as CSV, one per student and lab."""
    rows = []
    for each in graded:
        count = Counter(verdict.status for verdict in each.verdicts)
        points, of = ("", "") if each.problem else (f"{each.points:g}", f"{each.of:g}")
        rows.append({"student": each.student, "lab": each.lab, "points": points, "of": of,
                     **{status.replace(" ", "_"): count[status] for status in STATUSES},
                     "findings": len(each.findings), "copies": sum(each.student in students for students, _ in shared),
                     "file": each.file, "problem": each.problem})
    return pd.DataFrame(rows).convert_dtypes().to_csv(index=False)


def _feedback(each: Graded) -> str:
    """Return a student's feedback: each exercise, and what to explain; never a solution."""
    explain = {"Please explain: these figures look odd": each.findings} if each.findings else {}
    return _page(f"{each.lab}: {each.student}", f"{each.points:g} of {each.of:g} points.",
                 "The open questions are graded by a person.", **{"Exercises": [
                     f"{verdict.exercise}: {verdict.status} ({verdict.points:g} of {verdict.of:g}). {verdict.text}"
                     for verdict in each.verdicts], **explain})


def _class_page(graded: Sequence[Graded], shared: Sequence[tuple], others: Sequence[str]) -> str:
    """Return the page on the class; the exercises that most got wrong come first."""
    problems = [f"{each.file}: {each.problem}" for each in graded if each.problem]
    lines = [f"{plural(len(graded), 'hand-in')}, {len(problems)} of them not graded.", ""]
    if verdicts := [verdict for each in graded for verdict in each.verdicts]:
        frame = pd.DataFrame(verdicts)
        counts = pd.crosstab(frame["exercise"], frame["status"]).reindex(columns=list(STATUSES), fill_value=0)
        lines += ["```text", counts.sort_values(RIGHT).to_string(), "```"]
    return _page("The class", *lines, **{
        "Not graded": problems, "Files that are not hand-ins": others,
        "Shared or copied? You decide": [line for _, line in shared],
        "To explain": [f"{each.student}, {finding}" for each in graded for finding in each.findings]})
