"""The results store: one folder per run, `results/<lab>/<run>/record.json`, whole or not there.

    records.load()            every run of every lab, as a DataFrame
    records.read(folder)      one run, as the dictionary that is in the file
"""

from __future__ import annotations

import contextlib
import gc
import glob
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from labs.results import schema
from labs.run import atomic
from labs.run.errors import LabError
from labs.run.paths import results_dir
from labs.run.text import printable

if TYPE_CHECKING:
    import pandas as pd


Record = dict[str, Any]
"""What is known of a finished run; JSON can hold it. Its keys are those of `finish`."""
FORMAT = 1
LARGEST = 64 << 20
"""Bytes of a record; those of the labs have some thousand."""
RESERVED = schema.RESERVED


def read(folder: str | os.PathLike) -> Record:
    """Read the record of one run.

    Raises:
        LabError: It is no regular file, damaged, or not a record; names the file and what is wrong.
        OSError: There is none.
    """
    path = f"{folder}/record.json"
    content = atomic.read_bytes(path, LARGEST)
    try:
        record = _parsed(content)
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise LabError(f"not a record of format {FORMAT}")
        schema.check(record)
    except LabError as problem:
        raise LabError(f"{path}: {problem}") from None
    return record


def _parsed(content: bytes) -> Any:
    """Parse JSON, strictly but for NaN and infinities, which Python writes: the loss of a run that diverged."""
    try:
        try:
            return msgspec.json.decode(content)
        except ValueError:
            record = json.loads(content)
            msgspec.json.encode(record)  # Half a surrogate pair passes Python's reader, and can be printed nowhere.
            return record
    except RecursionError:
        raise LabError("nested too deeply for a record") from None
    except UnicodeEncodeError:
        raise LabError("holds half a surrogate pair, which is no text") from None
    except ValueError as problem:
        raise LabError(f"damaged, no JSON: {problem}") from None


def read_all(lab: str = "*", root: Path | None = None) -> list[Record]:
    """Read every valid record, oldest first; the others are named on the error stream and left out."""
    root, sound = root or results_dir(), []
    for path in sorted(glob.iglob(f"{lab}/*/record.json", root_dir=root)):
        try:
            sound.append(read(f"{root}/{os.path.dirname(path)}"))
        except LabError as problem:
            print(f"labs: left out: {printable(problem)}", file=sys.stderr)
        except OSError as problem:
            print(f"labs: left out: {printable(f'{problem.filename}: {problem.strerror}')}", file=sys.stderr)
    return sorted(sound, key=lambda record: record["started"])


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep Python's collector from looking through the millions of values of ten thousand records again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def load(lab: str = "*", root: Path | None = None) -> pd.DataFrame:
    """Return one row per run: its name and everything in config, layout, timings and metrics."""
    return table(read_all(lab, root))


def table(records: Iterable[Record]) -> pd.DataFrame:
    """Return records as a table, one row each.

    What a Config asked for and the layout tells too, such as `threads`, is the layout's; the Config's stands beside it
    as `asked_threads`. `attrs["config"]` names the columns that come from Configs: see `scaling.configuration`.
    """
    import pandas as pd

    records = list(records)
    frame, apart = pd.DataFrame(map(flat, records)), computed_on(records)
    frame[list(apart)] = pd.DataFrame(apart, frame.index)
    measured = {name for record in records for part in ("timings", "metrics") for name in record[part]}
    asked = {name: None for record in records for name in settings(record) if name not in measured}
    frame.attrs["config"] = list(asked | apart)
    return frame


def computed_on(records: Sequence[Record]) -> dict[str, list[str]]:
    """Return what records were computed on, if not all on the same: `gpu`, `onednn`, each a value per record.

    No Config says it, but it belongs to the configuration: speeds with and without are not compared.
    """
    machines = [record["machine"] for record in records]
    found = {"gpu": [", ".join(sorted(set(machine.get("gpus") or ()))) or "none" for machine in machines],
             "onednn": [{True: "on", False: "off"}.get(machine.get("onednn"), "not recorded") for machine in machines]}
    return {name: values for name, values in found.items() if len(set(values)) > 1}


def flat(record: Record) -> dict[str, Any]:
    """Return a record as one row of `table`."""
    about = {key: record[key] for key in ("lab", "run", "started")}
    return about | settings(record) | record["layout"] | record["timings"] | record["metrics"]


def settings(record: Record) -> dict[str, Any]:
    """Return a record's Config; what the layout tells too is called asked_ here."""
    layout = record["layout"]
    return {f"asked_{name}" if name in layout else name: value for name, value in record["config"].items()}


def rows(name: str, lab: str = "*", root: Path | None = None) -> pd.DataFrame:
    """Return the rows of one named table of all runs, beside their lab, run, number of workers and Config."""
    return rows_of(read_all(lab, root), name)


def rows_of(records: Iterable[Record], name: str) -> pd.DataFrame:
    """Return the rows of one named table of some runs; see `rows`."""
    import pandas as pd

    found = []
    for record in records:
        about = {"lab": record["lab"], "run": record["run"], "size": record["layout"]["size"]} | record["config"]
        found += [about | row for row in record.get("tables", {}).get(name, [])]
    return pd.DataFrame(found)


def curves(record: Record) -> pd.DataFrame:
    """Return the history of a run, one row per epoch."""
    import pandas as pd

    return pd.DataFrame(record["history"]).set_index("epoch")
