"""`labs exercises`: the questions that are graded from your own runs, and the code to write."""

from __future__ import annotations

import argparse

from labs.course import exercises
from labs.run import catalogue, terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe `labs exercises`, which has no options."""
    parser.description = ("List the questions that are graded from your own runs, with the runs that each refers to, "
                          "and the functions to write. In the notebook, exercises.check(question, answer) grades an "
                          "answer.")


def main(args: argparse.Namespace) -> None:
    """Print the questions."""
    for lab in [args.lab] if args.lab else catalogue.lab_names():
        print(terminal.folded("\n".join(exercises.listing(lab)), 6))
