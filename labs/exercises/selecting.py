"""The records that a question is about: functions that select them from all records of a lab."""

from collections.abc import Callable, Collection
from typing import Any

from labs.results import records
from labs.results.records import Record

Selector = Callable[[list[Record]], list[Record]]
"""Takes all records of a lab, oldest first, and returns those that a question is about, which the page calls "these
runs"; raises AssertionError if they are missing."""


def newest(what: str, source: str, accept: Callable[[Record], Any]) -> Selector:
    """Return a selector of the newest record that is accepted; the command or section `source` makes such a record."""
    def select(every: list[Record]) -> list[Record]:
        for record in filter(accept, reversed(every)):
            return [record]
        raise missing_run(what, source)

    return select


def missing_run(what: str, source: str) -> AssertionError:
    """Return the error that says which run is missing and what makes it: a command, or a section of the notebook."""
    return AssertionError(f"no record yet of {what}; {source} makes it")


def images_per_sec(record: Record) -> float:
    """Return the images per second of a run, without its first epoch; 0 if it has no other epoch."""
    return record["timings"].get("images_per_sec") or 0.0


def multi_worker(record: Record) -> bool:
    """Return whether a run had more than one worker."""
    return record["layout"]["size"] > 1


def pair_with_one_worker(source: str, *, strong: bool = False, may_differ: Collection[str] = (),
                         accept: Callable[[Record], Any] = images_per_sec) -> Selector:
    """Return a selector of the newest pair of runs with the same settings, one of one worker and one of several.

    `strong` asks for the same global batch size, instead of the same batch size per worker; `may_differ` has further
    settings that may differ; `accept` is what both records must have, and `source` what makes such a pair.
    """
    allowed = {"seed", *may_differ, *(("batch_size",) if strong else ())}

    def comparable(one: Record, many: Record) -> bool:
        # Workers on GPUs do not compute on CPU cores. Others must have equally many threads each.
        equal = ["threads"] * (not many["layout"].get("gpus")) + ["global_batch_size"] * strong
        return not multi_worker(one) and differing_settings(one, many) <= allowed and all(
            one["layout"].get(name) == many["layout"].get(name) for name in equal)

    def select(every: list[Record]) -> list[Record]:
        usable = list(filter(accept, reversed(every)))
        for many in filter(multi_worker, usable):
            for one in usable:
                if comparable(one, many):
                    return [one, many]
        batch = "global batch" if strong else "batch per worker"
        raise missing_run(f"one worker and of several with the same settings, {batch} and threads", source)

    return select


def differing_settings(one: Record, other: Record) -> set[str]:
    """Return the names of the settings in which two runs differ, what they were computed on among them."""
    both = one["config"], other["config"]
    differing = {name for name in both[0].keys() | both[1].keys() if both[0].get(name) != both[1].get(name)}
    return differing | set(records.computed_on([one, other]))
