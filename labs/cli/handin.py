"""`labs handin`: one zip with a student's answers, functions, executed notebook and records."""

from __future__ import annotations

import argparse

from labs.exercises import hand_ins
from labs.run import environment
from labs.run.errors import LabError
from labs.run.paths import expand_home
from labs.run.text import one_line, plural, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs handin`."""
    parser.description = ("Pack what you hand in for a lab: the answers and cells that exercises.check has judged "
                          "in your working copy, the notebook as you saved it, and the records of your runs. "
                          "Executes nothing; what is missing is listed, and the rest is packed. Needs LABS_STUDENT: "
                          "your student number.")
    parser.add_argument("--output", metavar="FOLDER", default=".", help="where to write the zip; default: here")


def main(args: argparse.Namespace) -> None:
    """Write the zip; print what went in, and what is missing.

    Raises:
        LabError: No lab is named, or LABS_STUDENT is not set.
    """
    if not args.lab:
        raise LabError("name the lab: labs handin lab04")
    owner = environment.student_id()
    if not owner:
        raise LabError(f"{environment.STUDENT} is not set, so nobody would know whose hand-in it is; "
                       f"export {environment.STUDENT}=s1234 (your student number)")
    path, hand_in = hand_ins.pack(args.lab, owner, expand_home(args.output, "--output"))
    lines = [f"{path}: hand-in of {owner} for {hand_in.manifest.lab}",
             *(f"  {question}: {one_line(answer)}" for question, answer in hand_in.answers.items()),
             *(f"  {task}: the cell of your function" for task in hand_in.functions),
             *(["  the notebook as you saved it"] if hand_in.notebook else []),
             "  " + plural(len(hand_in.records), "record")]
    missing = hand_in.manifest.missing
    lines += ["missing:", *(f"  {printable(line)}" for line in missing)] if missing else ["nothing is missing"]
    for line in lines:
        print(line)
