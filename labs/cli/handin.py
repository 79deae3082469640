"""`labs handin`: one zip with a student's answers, functions, executed notebook and records."""

from __future__ import annotations

import argparse

from labs.exercises import hand_ins
from labs.run import student
from labs.run.errors import LabError
from labs.run.paths import named
from labs.run.text import one_line, plural, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs handin`."""
    parser.description = ("Pack what you hand in for a lab: the answers and cells that exercises.check has judged, "
                          "the notebook as you saved it, and the records of your runs. Executes nothing; what is "
                          "missing is listed, and the rest is packed. Needs LABS_STUDENT: your student number.")
    parser.add_argument("--output", metavar="FOLDER", default=".", help="where to write the zip; default: here")


def main(args: argparse.Namespace) -> None:
    """Write the zip; print what went in, and what is missing."""
    if not args.lab:
        raise LabError("name the lab: labs handin lab04")
    owner = student.student_id()
    if not owner:
        raise LabError(f"{student.VARIABLE} is not set, so nobody would know whose hand-in it is; "
                       f"export {student.VARIABLE}=s1234 (your student number)")
    path, hand_in, missing = hand_ins.pack(args.lab, owner, named(args.output, "--output"))
    packed = [*(f"{question}: {one_line(saved.get('answer', 'the cell of your function'))}"
                for question, saved in hand_in.answers.items()),
              *["the notebook as you saved it"] * bool(hand_in.notebook), plural(len(hand_in.records), "record")]
    print(f"{path}: hand-in of {owner} for {hand_in.manifest.lab}", *packed, sep="\n  ")
    print("missing:" if missing else "nothing is missing", *map(printable, missing), sep="\n  ")
