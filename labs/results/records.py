"""Records of runs: their schema, and how they are read, as dictionaries and as a table.

    records.load()            every run of every lab, as a DataFrame
    records.read(folder)      one run, as a dictionary
"""

from __future__ import annotations

import collections
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from labs.results import noise
from labs.results.run_record import FORMAT, Record, digest
from labs.run.errors import LabError, one_line
from labs.run.paths import results_dir

if TYPE_CHECKING:
    import pandas as pd

LabName = Annotated[str, msgspec.Meta(pattern=r"^\w[\w.-]*\Z", max_length=255)]
"""No separators, because files are named after labs."""


class Layout(msgspec.Struct):
    """The workers that ran."""

    size: Annotated[int, msgspec.Meta(ge=1)]
    nodes: int
    global_batch_size: int


class Timings(msgspec.Struct):
    """The timings that every record has; they may be null."""

    images_per_sec: float | None
    seconds_per_epoch: float | None


class Epoch(msgspec.Struct):
    """A row of the history."""

    epoch: int
    train_seconds: float | None = None
    loss: float | None = None


class Schema(msgspec.Struct):
    """The fields that every reader may rely on."""

    lab: LabName
    run: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    started: str
    config: dict[str, Any]
    layout: Layout
    history: list[Epoch]
    timings: Timings
    metrics: dict[str, Any]
    machine: dict[str, Any]
    data: dict[str, dict[str, Any]] = {}
    tables: dict[str, list[dict[str, Any]]] = {}


def digest_state(record: Record) -> str:
    """Return "intact"; "edited" if the content was changed after the run; "none" for a record of an earlier kit."""
    return {None: "none", digest(record): "intact"}.get(record.get("digest"), "edited")


def read(folder: str | os.PathLike) -> Record:
    """Read the record of one run; raise OSError if there is none."""
    path = Path(folder, "record.json")
    return parse(path.read_bytes(), str(path))


def parse(content: bytes, path: str) -> Record:
    """Parse a record from the bytes of its file; raise a LabError that names `path` and the problem if it is none."""
    try:
        record = json.loads(content)  # Not msgspec's decoder: the loss of a diverged run is NaN.
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise LabError(f"{path}: not a record of format {FORMAT}")
        msgspec.convert(record, Schema)
    except msgspec.ValidationError as problem:
        text, _, field = str(problem).rstrip("`").partition(" - at `$.")
        raise LabError(f"{path}: {field}: {text}".replace("[...]", "")) from None
    except (ValueError, RecursionError) as problem:
        raise LabError(f"{path}: damaged, not JSON: {problem}") from None
    return record


def read_all(lab: str = "*", root: Path | None = None) -> list[Record]:
    """Read every valid record, oldest first; name the others on the error stream."""
    valid = []
    for path in sorted((root or results_dir()).glob(f"{lab}/*/record.json")):
        try:
            valid.append(read(path.parent))
        except (LabError, OSError) as problem:
            print(f"labs: left out: {one_line(problem)}", file=sys.stderr)
    return sorted(valid, key=lambda record: record["started"])


def load(lab: str = "*", root: Path | None = None) -> pd.DataFrame:
    """Return one row per run: its name and everything in config, layout, timings and metrics."""
    return table(read_all(lab, root))


def table(records: Iterable[Record]) -> pd.DataFrame:
    """Return records as a table, one row each; the column `disturbed` says why a run's times cannot be trusted.

    Where Config and layout share a name, such as `threads`, the column holds the layout's value, and `asked_threads`
    the Config's. `attrs["config"]` names the columns that come from Configs: see `scaling.configuration`.
    """
    import pandas as pd

    records = list(records)
    frame, hardware = pd.DataFrame(map(_flat, records)), computed_on(records)
    frame[list(hardware)] = pd.DataFrame(hardware, frame.index)
    frame["disturbed"] = list(map(noise.disturbance, records))
    measured = {name for record in records for name in record["timings"] | record["metrics"]}
    configured = {name: None for record in records for name in _settings(record) if name not in measured}
    frame.attrs["config"] = tuple(configured | hardware)
    return frame


def computed_on(records: Sequence[Record]) -> dict[str, list[str]]:
    """Return the columns below, one value per record, each only if its values differ.

    They are in no Config, but they belong to the configuration: runs with and without are not compared.
    """
    machines = [record["machine"] for record in records]
    columns = {
        "gpu": [", ".join(sorted(set(machine.get("gpus") or ()))) or "none" for machine in machines],
        "onednn": [{True: "on", False: "off"}.get(machine.get("onednn"), "not recorded") for machine in machines],
        "variables": [" ".join(map("=".join, (machine.get("variables") or {}).items())) or "none"
                      for machine in machines],
        "link": [machine.get("link") or "none" for machine in machines],
        "data_set": _data_sets(records),
    }
    return {name: values for name, values in columns.items() if len(set(values)) > 1}


def _data_sets(records: Sequence[Record]) -> list[str]:
    """Return the digest of each record's data set where runs of one lab and one --data had several; elsewhere ""."""
    digests = [record.get("data", {}).get("train", {}).get("data_set", "") for record in records]
    names = [(record["lab"], str(record["config"].get("data"))) for record in records]
    several = collections.Counter(name for name, each in {*zip(names, digests, strict=True)} if each)
    return [(each or "not recorded") if several[name] > 1 else "" for name, each in zip(names, digests, strict=True)]


def _flat(record: Record) -> dict[str, Any]:
    """Return a record as one row of `table`; its lab, run, start and layout override other fields of the same name."""
    about, layout = {key: record[key] for key in ("lab", "run", "started")}, record["layout"]
    return about | _settings(record) | layout | record["timings"] | record["metrics"] | layout | about


def _settings(record: Record) -> dict[str, Any]:
    """Return a record's Config; a name that the layout has too gets the prefix `asked_`."""
    layout = record["layout"]
    return {f"asked_{name}" if name in layout else name: value for name, value in record["config"].items()}


def rows_of(records: Iterable[Record], name: str) -> pd.DataFrame:
    """Return the rows of one named table of some runs, with lab, run, number of workers and Config."""
    import pandas as pd

    rows = []
    for record in records:
        about = {"lab": record["lab"], "run": record["run"], "size": record["layout"]["size"]}
        rows += [about | record["config"] | row | about for row in record.get("tables", {}).get(name, [])]
    return pd.DataFrame(rows)
