"""Records of runs: `<results root>/<lab>/<run>/record.json`, written atomically.

    records.load()            every run of every lab, as a DataFrame
    records.read(folder)      one run, as a dictionary
"""

from __future__ import annotations

import collections
import dataclasses
import glob
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from labs.results import noise, schema
from labs.results.schema import FORMAT, Record
from labs.run import atomic
from labs.run.errors import LabError
from labs.run.paths import results_dir
from labs.run.text import one_line

if TYPE_CHECKING:
    import pandas as pd


class Names(tuple):
    """Names of columns in a frame's `attrs`; pandas copies these deeply whenever it takes a column."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict) -> Names:
        return self


LARGEST = 64 << 20
"""The most bytes of a record; those of the labs have a few thousand."""


def read(folder: str | os.PathLike) -> Record:
    """Read the record of one run.

    Raises:
        LabError: The file is not a regular file, is damaged, or is not a record; names the file and the problem.
        OSError: The file does not exist.
    """
    path = f"{folder}/record.json"
    return parse(atomic.read_bytes(path, LARGEST), path)


def parse(content: bytes, path: str) -> Record:
    """Parse a record from the bytes of its file.

    Raises:
        LabError: The file is damaged or is not a record; the message names `path` and the problem.
    """
    try:
        record = _parsed(content)
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise LabError(f"not a record of format {FORMAT}")
        schema.check(record)
    except (ValueError, RecursionError) as problem:
        raise LabError(f"{path}: damaged, not JSON: {problem}") from None
    except LabError as problem:
        raise LabError(f"{path}: {problem}") from None
    return record


def digest_state(record: Record) -> str:
    """Return "intact"; "edited" if the content was changed after the run; "none" for a record of an earlier kit."""
    if "digest" not in record:
        return "none"
    return "intact" if record["digest"] == schema.digest(record) else "edited"


def _parsed(content: bytes) -> Any:
    """Parse JSON, strictly except for NaN and infinities, which Python writes for the loss of a diverged run."""
    try:
        return msgspec.json.decode(content)
    except ValueError:
        record = json.loads(content)
        msgspec.json.encode(record)  # Python's reader accepts a lone surrogate, which cannot be printed.
        return record


def refuse_unreadable(lab: str, config: Any) -> None:
    """Refuse a Config whose record could not be read at the end of the run.

    Raises:
        LabError: The Config has a value that a record cannot hold; the message names the field and the problem.
    """
    draft = {"lab": lab, "run": "draft", "started": "", "config": dataclasses.asdict(config),
             "layout": {"size": 1, "nodes": 1, "global_batch_size": 1}, "history": [],
             "timings": dict.fromkeys(("images_per_sec", "seconds_per_epoch")), "metrics": {}, "machine": {}}
    try:
        schema.check(_parsed(json.dumps(draft, default=str).encode()))
    except LabError as problem:
        raise LabError(f"this run's record could not be read: {problem}") from None


def read_all(lab: str = "*", root: Path | None = None) -> list[Record]:
    """Read every valid record, oldest first; name the others on the error stream."""
    root, valid = root or results_dir(), []
    for path in sorted(glob.iglob(f"{lab}/*/record.json", root_dir=root)):
        try:
            valid.append(read(f"{root}/{os.path.dirname(path)}"))
        except LabError as problem:
            print(f"labs: left out: {one_line(problem)}", file=sys.stderr)
        except OSError as problem:
            print(f"labs: left out: {one_line(f'{problem.filename}: {problem.strerror}')}", file=sys.stderr)
    return sorted(valid, key=lambda record: record["started"])


def load(lab: str = "*", root: Path | None = None) -> pd.DataFrame:
    """Return one row per run: its name and everything in config, layout, timings and metrics."""
    return table(read_all(lab, root))


def table(records: Iterable[Record]) -> pd.DataFrame:
    """Return records as a table, one row each.

    Where Config and layout share a name, such as `threads`, the column holds the layout's value, and `asked_threads`
    the Config's. `attrs["config"]` names the columns that come from Configs: see `scaling.configuration`. The column
    `disturbed` is `noise.disturbance`, which says why a run's times cannot be trusted.
    """
    import pandas as pd

    records = list(records)
    frame, hardware = pd.DataFrame(map(flat, records)), computed_on(records)
    frame[list(hardware)] = pd.DataFrame(hardware, frame.index)
    frame["disturbed"] = list(map(noise.disturbance, records))
    measured = {name for record in records for name in record["timings"] | record["metrics"]}
    configured = {name: None for record in records for name in settings(record) if name not in measured}
    frame.attrs["config"] = Names(configured | hardware)
    return frame


def computed_on(records: Sequence[Record]) -> dict[str, list[str]]:
    """Return the columns below, one value per record, each only if its values differ.

    They are in no Config, but they belong to the configuration: runs with and without are not compared.
    """
    machines = [record["machine"] for record in records]
    gpus = [", ".join(sorted(set(machine.get("gpus") or ()))) or "none" for machine in machines]
    onednn = [{True: "on", False: "off"}.get(machine.get("onednn"), "not recorded") for machine in machines]
    variables = [" ".join(map("=".join, (machine.get("variables") or {}).items())) or "none" for machine in machines]
    links = [machine.get("link") or "none" for machine in machines]
    columns = {"gpu": gpus, "onednn": onednn, "variables": variables, "link": links, "data_set": _data_sets(records)}
    return {name: values for name, values in columns.items() if len(set(values)) > 1}


def _data_sets(records: Sequence[Record]) -> list[str]:
    """Return the digest of each record's data set where runs of one lab and one --data had several; elsewhere ""."""
    digests = [record.get("data", {}).get("train", {}).get("data_set", "") for record in records]
    names = [(record["lab"], str(record["config"].get("data"))) for record in records]
    known: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for name, digest in zip(names, digests, strict=True):
        known[name] |= {digest} - {""}
    return [(digest or "not recorded") if len(known[name]) > 1 else ""
            for digest, name in zip(digests, names, strict=True)]


def flat(record: Record) -> dict[str, Any]:
    """Return a record as one row of `table`; its lab, run, start and layout override other fields of the same name."""
    about = {key: record[key] for key in ("lab", "run", "started")}
    layout = record["layout"]
    return about | settings(record) | layout | record["timings"] | record["metrics"] | layout | about


def settings(record: Record) -> dict[str, Any]:
    """Return a record's Config; a name that the layout has too gets the prefix `asked_`."""
    layout = record["layout"]
    return {f"asked_{name}" if name in layout else name: value for name, value in record["config"].items()}


def rows_of(records: Iterable[Record], name: str) -> pd.DataFrame:
    """Return the rows of one named table of some runs, with lab, run, number of workers and Config."""
    import pandas as pd

    frame_rows = []
    for record in records:
        about = {"lab": record["lab"], "run": record["run"], "size": record["layout"]["size"]}
        frame_rows += [about | record["config"] | row | about for row in record.get("tables", {}).get(name, [])]
    return pd.DataFrame(frame_rows)


def curves(record: Record) -> pd.DataFrame:
    """Return the history of a run, one row per epoch."""
    import pandas as pd

    return pd.DataFrame(record["history"]).set_index("epoch")
