"""Typed tables of results: a CSV file as the rules of lint want it, in their names, units and numbers.

Spreadsheets of many countries and habits are understood: commas, semicolons, tabs or bars between the cells; 1,905x;
91 % beside 0.91; 60,000 and 60.000 and 60 000; 52.5 s, 1:23, 2 min; "4 GPUs". What was read as what is told in
`Table.reading`, with the columns and cells that were not used.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from labs.lint import columns, spellings
from labs.lint.cells import CELL, EMPTY, ONES, SUMMARY, Figure, decimal_marks, figures_of, worker_count
from labs.lint.columns import Column
from labs.lint.csv_file import Lines, read_lines
from labs.lint.table import Row, Table, size
from labs.run.errors import LabError

COURSE: dict[str, dict[str, Any]] = {
    "lab02_mnist_accuracy": {"images": 60_000, "test_images": 10_000},  # MNIST
    "lab04_speedup": {"images": 50_000, "gradient_bytes": 44.7e6},  # CIFAR-10, ResNet-18
    "lab07_transported_bytes": {"images": 60_000},  # MNIST
}
"""What the course reports' tables do not say of themselves; columns of these names say it in any other table."""


NOTES = {
    "note", "notes", "comment", "comments", "remark", "remarks", "date", "time_stamp", "timestamp", "host",
    "hostname", "node_name", "job", "jobid", "job_id", "run", "who", "name", "student", "id", "description",
    "status", "state", "bemerkung", "bemerkungen", "kommentar", "observation", "observations", "remarque",
    "hosts", "lab", "part", "source", "question", "rule", "scaling_rule", "where_the_inputs_are_from", "run_id",
    "line", "row",
}
"""Columns that describe a row and are no part of its configuration."""


CONFIG = {
    "model", "device", "dataset", "data", "optimizer", "precision", "dtype", "backend", "library", "framework",
    "hardware", "gpu", "gpus", "machine", "cluster", "partition", "interconnect", "network", "fabric", "link",
    "collective", "threads", "epochs", "batch_size", "processes_per_node", "image_size", "resolution",
    "compression", "xla", "placement", "transport", "data_set", "gpu_type", "gpu_model", "accelerator",
    "system", "platform", "setup", "mode", "bytes",
}
"""Columns that always tell configurations apart, however seldom their values repeat."""


def read_csv(path: Path) -> Table:
    """Read a typed table: columns by the names that the rules use, `row` the line in the file.

    Raises:
        LabError: It cannot be read, is no table, or has no column that a rule uses.
    """
    names, lines, between = _long(*read_lines(path))
    heading = _heading([columns.meaning(name) for name in names], names)
    cells = {place: [line[place] for _, line in lines] for place in range(len(names))}
    marks = decimal_marks(text for texts in cells.values() for text in texts)
    read: dict[int, list[Figure]] = {}
    for place, column in enumerate(heading):
        figures = figures_of(column, cells[place], marks, between)
        if any(figure.known for figure in figures):
            read[place] = figures
        elif column.name not in spellings.TEXT or all(map(CELL.fullmatch, filter(None, cells[place]))) or any(
                re.search(r"(?i)\d ?G|ethernet|infiniband|nvlink|pcie", text) for text in cells[place]):
            # Its name promised figures, and there are none; or words, and there are figures; or a network is a link.
            heading[place] = Column("", measured=False)
    left_out = _left_out(names, heading, cells, read, lines)
    summaries = _summaries(cells, read, heading)
    rows = []
    for index, (line, texts) in enumerate(lines):
        if index not in summaries:
            rows.append(_row(path, line, index, names, heading, texts, read))
    known = {column.name for column in heading if column.name}
    known |= {"spread"} if any(column.spread for column in heading) else set()
    known |= {"local"} if any(columns.meaning(name).name == "worker_batch_size" for name in names) else set()
    known |= {"bus"} if any(column.name == "bandwidth" and "bus" in name.lower()
                            for name, column in zip(names, heading, strict=True)) else set()
    rows, known = _completed(rows, known)
    course = COURSE.get(path.stem, {})
    rows = [course | row for row in rows]
    config = _config(names, heading, rows, known)
    if not rows or not (known - {"spread", "local"}):
        raise LabError(f"{path.name}: nothing could be checked: no column that a rule uses among {', '.join(names)}; "
                       "known are gpus, batch_size, epoch_time_s, images/s, speedup and many others "
                       "(labs/lint/spellings.py)")
    reading = _reading(names, heading, config, left_out, [lines[index][0] for index in sorted(summaries)])
    return Table(rows, frozenset(known | set(course) | set(config)), config, reading)


WIDE = re.compile(r"(?i)(?<![a-z0-9.])(\d{1,4}|one|single|two|four|eight)[ _-]*"
                  r"(gpus?|workers?|process(es)?|procs?|ranks?)(?![a-z0-9])")


def _long(names: list[str], lines: Lines, between: str) -> tuple[list[str], Lines, str]:
    """Return a table with a row per number of workers, if it has a column for each: "1 GPU (s), 2 GPUs (s)"."""
    groups: dict[str, dict[int, int]] = defaultdict(dict)
    for place, name in enumerate(names):
        if not columns.meaning(name).name and (found := WIDE.search(name)):  # "Speedup vs 1 GPU" is one column.
            rest = " ".join((name[:found.start()] + " " + name[found.end():]).strip(" _-:@,").split())
            rest = rest if columns.meaning(rest).name and rest[0] not in "([" else f"time {rest}"
            groups[rest].setdefault(ONES.get(found[1].lower()) or int(found[1]), place)
    groups = {rest: places for rest, places in groups.items() if columns.meaning(rest).name
              and (columns.meaning(rest).unit or not rest.startswith("time "))}
    if max(map(len, groups.values()), default=0) < 2 or any(columns.meaning(name).name == "size" for name in names):
        return names, lines, between
    moved = {place for places in groups.values() for place in places.values()}
    kept = [place for place in range(len(names)) if place not in moved]
    rows = [(line, [*(cells[place] for place in kept), str(count),
                    *(cells[places[count]] if count in places else "" for places in groups.values())])
            for line, cells in lines for count in sorted({count for places in groups.values() for count in places})]
    return [*(names[place] for place in kept), "workers", *groups], rows, between


def _heading(found: list[Column], names: list[str]) -> list[Column]:
    """Return what each column is; of two that mean the same only one is used."""
    own = [column.name for column in found]
    low = {name.lower().strip() for name in names}
    taken: set[str] = set()
    heading = []
    for column, name in zip(found, names, strict=True):
        stem, _, last = name.lower().strip().rpartition("_")
        extreme = last == "min" and {f"{stem}_{other}" for other in ("max", "mean", "avg", "median", "std")} & low
        if (column.name == "cores" and "size" in own) or column.name in taken or extreme:
            column = Column("", measured=True)
        elif column.name == "cores":
            column = Column("size")
        elif column.name == "worker_batch_size":
            column = Column("batch_size") if "batch_size" not in taken else Column("", measured=True)
        taken |= {column.name} - {""}
        heading.append(column)
    collective = {"bytes"} & taken and {"bandwidth", "algbw", "collective"} & taken
    if collective and "total_seconds" in taken:  # The time of an all-reduce, no run's.
        place = [column.name for column in heading].index("total_seconds")
        heading[place] = Column("seconds", heading[place].unit, heading[place].factor)
    if "step_seconds" in taken and "epoch_seconds" not in taken:  # Parts of a step, then.
        heading = [dataclasses.replace(column, name=f"step_{column.name}") if column.name in spellings.PARTS else column
                   for column in heading]
    return heading


def _config(names: list[str], heading: list[Column], rows: list[Row], known: set[str]) -> tuple[str, ...]:
    """Return the columns that tell the rows' configurations apart."""
    chosen = []
    for place, column in enumerate(heading):
        name = column.name or _label(place, names)
        plain = re.sub(r"\W+", "_", names[place].lower()).strip("_")
        if column.name in ("size", "nodes") or (column.name and column.name not in CONFIG) or column.measured or (
                plain == "experiment"):
            continue
        values = [row.get(name) for row in rows]
        numbers = [value for value in values if isinstance(value, float)]
        note = plain in NOTES or plain.endswith(("notes", "note", "comment"))
        repeated = all(values) and len(set(values)) < len(values) and all(value == int(value) for value in numbers)
        if name in CONFIG or (plain in CONFIG and not numbers) or (repeated and not note):
            chosen.append(name)
    return tuple(name for name in chosen if name != "bytes" or "collective" in known or {"bandwidth", "algbw"} & known)


def _label(place: int, names: list[str]) -> str:
    """Return the key of a column that no rule knows."""
    plain = re.sub(r"\W+", "_", names[place].lower()).strip("_")
    return plain if plain in CONFIG and names.index(names[place]) == place and plain not in spellings.MEANINGS else (
        f"label_{place}")


def _reading(names: list[str], heading: list[Column], config: tuple[str, ...], left_out: list[str],
             summaries: list[int]) -> str:
    """Say what was read as what, and what was not used."""
    used, apart, unused = [], [], []
    for place, (name, column) in enumerate(zip(names, heading, strict=True)):
        if column.name:
            part = column.name.removeprefix("step_") if column.name.removeprefix("step_") in spellings.PARTS else ""
            word = spellings.WORDS.get(part or column.name, column.name.replace("_", " "))
            word += " of a step" * (part != column.name and bool(part))
            told = not column.unit or column.unit in word or f"[{column.unit}]" in name
            unit = "" if told else f" [{column.unit}]"
            used.append(name if name.lower().replace("_", " ") == word else f"{name} as {word}{unit}")
        elif _label(place, names) in config:
            apart.append(name)
        elif name:
            unused.append(name)
    parts = [f"read {', '.join(used)}"] if used else []
    parts += [f"told apart by {', '.join(apart)}"] if apart else []
    parts += [f"not used: {', '.join(unused)}"] if unused else []
    more = f" and {len(left_out) - 5} more" * (len(left_out) > 5)
    parts += [f"no figures, left out: {', '.join(left_out[:5])}{more}"] if left_out else []
    parts += [f"summaries, left out: line{'s' * (len(summaries) > 1)} {', '.join(map(str, summaries[:9]))}"
              ] if summaries else []
    return "; ".join(parts)


def _left_out(names: list[str], heading: list[Column], cells: dict[int, list[str]], read: dict[int, list[Figure]],
              lines: list[tuple[int, list[str]]]) -> list[str]:
    """Name the cells of columns of figures that hold none, and are not empty."""
    found = []
    for place, figures in read.items():
        for index, figure in enumerate(figures):
            text = cells[place][index]
            if heading[place].name and not figure.known and not EMPTY.fullmatch(text) and not SUMMARY.fullmatch(text):
                found.append(f"line {lines[index][0]} {text[:20]!r}")
    return found


def _summaries(cells: dict[int, list[str]], read: dict[int, list[Figure]], heading: list[Column]) -> set[int]:
    """Return the rows that sum others up: a total, a mean over the repeats above."""
    found: set[int] = set()
    for place in sorted(cells)[:3]:
        if any(figure.known for figure in read.get(place, ())) or place not in read:
            told = [index for index, text in enumerate(cells[place]) if SUMMARY.fullmatch(text)]
            if len(told) < len(cells[place]):
                found |= set(told)
            else:  # A column "statistic": the means are the figures.
                found |= {index for index in told if not re.match("(?i)mean|av|median|mittel|moy", cells[place][index])}
    return found if len(found) < len(next(iter(cells.values()))) else set()


def _row(path: Path, line: int, index: int, names: list[str], heading: list[Column], texts: list[str],
         read: dict[int, list[Figure]]) -> Row:
    """Return a row: figures by the rules' columns, other cells by labels."""
    row: Row = {"row": line, "id": index, "where": path.name, "rounding": {}}
    for place, column in enumerate(heading):
        name, figure = column.name or _label(place, names), read.get(place, [Figure()] * (index + 1))[index]
        if column.name and column.name not in spellings.TEXT:
            row[name] = figure.value if figure.known else None
            row["rounding"][name] = figure.rounding
        else:
            row[name] = figure.value if figure.known and not column.name else texts[place] or None
            if figure.known and not column.name and not column.spread:
                unread = f"unread_{'time_' * (column.unit in spellings.TIME)}{place}"
                row[unread], row["rounding"][unread] = figure.value, figure.rounding
    row["words"] = " ".join(text for text in texts if re.search(r"[^\W\d]", text))
    return row


def _completed(rows: list[Row], known: set[str]) -> tuple[list[Row], set[str]]:
    """Add what follows from a table's own words: workers named in a text, images/s of all from those of one worker."""
    if "size" not in known and not {"nodes"} & known:
        for name in sorted({name for row in rows for name in row if name.startswith("label_")} | {"setup"}):
            counts = [worker_count(str(row.get(name) or "")) for row in rows]
            named = all(re.search(r"(?i)gpu|worker|process|rank", str(row.get(name))) for row in rows)
            if rows and all(counts) and named:
                rows = [row | {"size": float(count)} for row, count in zip(rows, counts, strict=True)]
                known = known | {"size"}
                break
    if {"nodes", "processes_per_node"} <= known and "size" not in known and any(
            size(row) == 1 for row in rows):  # 1 x 1, 1 x 4, 2 x 4: the base is one worker, not one node.
        rows, known = [row | {"size": size(row) if size(row) > 0 else None} for row in rows], known | {"size"}
    if "worker_images_per_sec" in known and "images_per_sec" not in known and "size" in known:
        for row in rows:
            each, count = row.get("worker_images_per_sec"), row.get("size")
            row["images_per_sec"] = each * count if each and count else None
            row["rounding"]["images_per_sec"] = row["rounding"]["worker_images_per_sec"] * (count or 1)
        known = known | {"images_per_sec"}
    return rows, known
