"""`labs data`: the data sets of the labs."""

from __future__ import annotations

import argparse

from labs.datasets import fetch, registry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `list`, `fetch NAME` and `verify NAME`."""
    parser.description = "List, download and verify the data sets of the labs."
    actions = parser.add_subparsers(dest="action", required=True, metavar="list | fetch | verify")
    actions.add_parser("list", help="list all data sets, and which of them are downloaded")
    for action, summary in (("fetch", "download a data set, check and unpack it"),
                            ("verify", "verify a downloaded data set")):
        actions.add_parser(action, help=summary).add_argument("name", choices=tuple(registry.DATASETS), metavar="NAME",
                                                              help=", ".join(registry.DATASETS))


def main(args: argparse.Namespace) -> None:
    """List, download or verify."""
    if args.action == "list":
        print(fetch.listing())
    elif args.action == "fetch":
        print(f"{args.name}: {fetch.fetch_dataset(args.name)}")
    else:
        print(fetch.verify_dataset(args.name))
