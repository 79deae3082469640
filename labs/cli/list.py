"""`labs list`: the labs of this clone."""

from __future__ import annotations

import argparse

from labs.run import catalogue, terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe `labs list`, which has no options."""
    parser.description = "List the labs of this clone, each with its subject."


def main(args: argparse.Namespace) -> None:
    """Print the labs."""
    for name in catalogue.lab_names():
        print(terminal.folded(f"{name:18} {catalogue.load_lab(name).title.partition(': ')[2]}", 19))
