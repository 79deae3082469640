"""Reads a typed table of results, a CSV file, into a `Table` with the rules' column names and units.

It understands the spreadsheets of many countries: commas, semicolons, tabs or bars between the cells; 1,905x; 91 %
beside 0.91; 60,000 and 60.000 and 60 000; 52.5 s, 1:23, 2 min; "4 GPUs". `Table.reading` says how each column
was read, and which columns and cells were not used.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from labs.course.plausibility import columns, spellings
from labs.course.plausibility.cells import CELL, EMPTY, ONES, SUMMARY, Figure, decimal_marks, read_figures, worker_count
from labs.course.plausibility.columns import Column
from labs.course.plausibility.csv_file import Lines, read_lines
from labs.course.plausibility.table import Row, Table, size
from labs.run.errors import LabError

COURSE: dict[str, dict[str, Any]] = {
    "lab02_mnist_accuracy": {"images": 60_000, "test_images": 10_000},  # MNIST
    "lab04_speedup": {"images": 50_000, "gradient_bytes": 44.7e6},  # CIFAR-10, ResNet-18
    "lab07_transported_bytes": {"images": 60_000},  # MNIST
}
"""What the course reports' tables do not state themselves. Other tables state it in columns of these names."""

NOTES = {
    "note", "notes", "comment", "comments", "remark", "remarks", "observation", "observations",
    "bemerkung", "bemerkungen", "kommentar", "description", "date", "time_stamp", "timestamp", "host", "hosts",
    "hostname", "node_name", "job", "jobid", "job_id", "run", "run_id", "id", "who", "name", "student", "status",
    "state", "lab", "part", "source", "where_the_inputs_are_from", "question", "rule", "scaling_rule", "line",
    "row",
}
"""Columns that describe a row and are not part of its configuration."""

CONFIG = {
    "model", "device", "dataset", "data", "data_set", "optimizer", "precision", "dtype", "backend", "library",
    "framework", "hardware", "gpu", "gpus", "gpu_type", "gpu_model", "accelerator", "machine", "cluster",
    "partition", "system", "platform", "setup", "mode", "interconnect", "network", "fabric", "link", "transport",
    "collective", "threads", "epochs", "batch_size", "processes_per_node", "image_size", "resolution",
    "compression", "xla", "placement", "bytes",
}
"""Columns that always tell configurations apart, even if no value repeats."""

WIDE = re.compile(r"(?i)(?<![a-z0-9.])(\d{1,4}|one|single|two|four|eight)[ _-]*"
                  r"(gpus?|workers?|process(es)?|procs?|ranks?)(?![a-z0-9])")
"""The number of workers in a column's title."""

LINK = re.compile(r"\d ?G|ethernet|infiniband|nvlink|pcie", re.IGNORECASE)


@dataclasses.dataclass
class TypedColumn:
    """A column of a typed table."""

    title: str
    label: str
    """Its key in rows, if no rule knows the column."""
    means: Column
    texts: list[str]
    figures: list[Figure | None]
    """Its cells as numbers; empty if no cell is one."""

    @property
    def key(self) -> str:
        """Its key in rows."""
        return self.means.name or self.label

    @property
    def plain(self) -> str:
        """Its title in lower case, with underscores."""
        return _plain(self.title)


def read_csv(path: Path) -> Table:
    """Read a typed table: columns by the names that the rules use, `row` the line in the file.

    Raises:
        LabError: The file cannot be read, is not a table, or has no column that a rule uses.
    """
    titles, lines, delimiter = read_lines(path)
    titles, lines = _long(titles, lines)
    typed = _typed_columns(titles, lines, delimiter)
    summaries = _summaries(typed)
    rows = [_row(path, line, index, typed) for index, (line, _) in enumerate(lines) if index not in summaries]
    known = {column.means.name for column in typed} - {""}
    known |= {"spread"} if any(column.means.spread for column in typed) else set()
    known |= {"local"} if any(columns.meaning(title).name == "worker_batch_size" for title in titles) else set()
    known |= {"bus"} if any(column.means.name == "bandwidth" and "bus" in column.title.lower()
                            for column in typed) else set()
    rows, known = _completed(rows, known)
    course = COURSE.get(path.stem, {})
    rows = [course | row for row in rows]
    config = _config(typed, rows, known)
    if not rows or not (known - {"spread", "local"}):
        raise LabError(f"{path.name}: nothing could be checked: no column that a rule uses among {', '.join(titles)}; "
                       "known are gpus, batch_size, epoch_time_s, images/s, speedup and many others "
                       "(labs/course/plausibility/spellings.py)")
    numbers = [line for line, _ in lines]
    reading = _reading(typed, config, numbers, sorted(summaries))
    return Table(rows, frozenset(known | set(course) | set(config)), config, reading)


def _long(titles: list[str], lines: Lines) -> tuple[list[str], Lines]:
    """Return a table with a row per number of workers, if it has a column for each: "1 GPU (s), 2 GPUs (s)"."""
    groups: dict[str, dict[int, int]] = defaultdict(dict)  # Title without the workers -> workers -> column.
    for index, title in enumerate(titles):
        if not columns.meaning(title).name and (match := WIDE.search(title)):  # "Speedup vs 1 GPU" is one column.
            rest = " ".join((title[:match.start()] + " " + title[match.end():]).strip(" _-:@,").split())
            rest = rest if columns.meaning(rest).name and rest[0] not in "([" else f"time {rest}"
            groups[rest].setdefault(ONES.get(match[1].lower()) or int(match[1]), index)
    groups = {rest: indices for rest, indices in groups.items() if columns.meaning(rest).name
              and (columns.meaning(rest).unit or not rest.startswith("time "))}
    if max(map(len, groups.values()), default=0) < 2 or any(columns.meaning(title).name == "size" for title in titles):
        return titles, lines
    moved = {index for indices in groups.values() for index in indices.values()}
    kept = [index for index in range(len(titles)) if index not in moved]
    counts = sorted({count for indices in groups.values() for count in indices})
    rows = [(line, [*(cells[index] for index in kept), str(count),
                    *(cells[indices[count]] if count in indices else "" for indices in groups.values())])
            for line, cells in lines for count in counts]
    return [*(titles[index] for index in kept), "workers", *groups], rows


def _typed_columns(titles: list[str], lines: Lines, delimiter: str) -> list[TypedColumn]:
    """Return the columns of a table, each with its meaning and its cells as numbers."""
    marks = decimal_marks(text for _, cells in lines for text in cells)
    typed = []
    for index, (title, means) in enumerate(zip(titles, _meanings(titles), strict=True)):
        texts = [cells[index] for _, cells in lines]
        figures = read_figures(means, texts, marks, delimiter)
        if not any(figures):
            # The title promises numbers and there are none, or words and there are numbers; or a network is a link.
            words = means.name in spellings.TEXT and not all(map(CELL.fullmatch, filter(None, texts)))
            means = means if words and not any(map(LINK.search, texts)) else Column("")
            figures = []
        plain = _plain(title)
        own = plain in CONFIG and titles.index(title) == index and plain not in spellings.MEANINGS
        typed.append(TypedColumn(title, plain if own else f"label_{index}", means, texts, figures))
    return typed


def _plain(title: str) -> str:
    return re.sub(r"\W+", "_", title.lower()).strip("_")


def _meanings(titles: list[str]) -> list[Column]:
    """Return what each column is; of two columns that mean the same, only the first is used."""
    taken: set[str] = set()
    meanings = []
    for column in map(columns.meaning, titles):
        if column.name in taken:
            column = Column("", measured=True)
        elif column.name == "worker_batch_size":
            column = Column("batch_size") if "batch_size" not in taken else Column("", measured=True)
        taken |= {column.name} - {""}
        meanings.append(column)
    if "bytes" in taken and {"bandwidth", "algbw", "collective"} & taken:  # A study of collectives.
        meanings = [dataclasses.replace(column, name="seconds") if column.name == "total_seconds" else column
                    for column in meanings]
    if "step_seconds" in taken and "epoch_seconds" not in taken:  # The parts are those of a step; no rule reads them.
        meanings = [Column("", measured=True) if column.name in spellings.PARTS else column for column in meanings]
    return meanings


def _config(typed: list[TypedColumn], rows: list[Row], known: set[str]) -> tuple[str, ...]:
    """Return the columns that tell the rows' configurations apart."""
    chosen = []
    for column in typed:
        name, plain = column.means.name, column.plain
        if name in ("size", "nodes") or (name and name not in CONFIG) or column.means.measured or plain == "experiment":
            continue
        values = [row.get(column.key) for row in rows]
        numbers = [value for value in values if isinstance(value, float)]
        note = plain in NOTES or plain.endswith(("notes", "note", "comment"))
        repeated = all(values) and len(set(values)) < len(values) and all(value == int(value) for value in numbers)
        if column.key in CONFIG or (plain in CONFIG and not numbers) or (repeated and not note):
            chosen.append(column.key)
    return tuple(name for name in chosen if name != "bytes" or {"bandwidth", "algbw", "collective"} & known)


def _reading(typed: list[TypedColumn], config: tuple[str, ...], lines: list[int], summaries: list[int]) -> str:
    """Say how each column was read, and what was not used.

    Args:
        typed: The columns.
        config: Those that tell configurations apart.
        lines: The lines of the rows.
        summaries: The indices of the rows that are summaries.
    """
    left_out = [f"line {line} {text[:20]!r}" for column in typed if column.means.name
                for line, text, figure in zip(lines, column.texts, column.figures, strict=False)
                if not figure and not EMPTY.fullmatch(text) and not SUMMARY.fullmatch(text)]
    clauses = {
        "read": [_as_read(column) for column in typed if column.means.name],
        "told apart by": [column.title for column in typed if not column.means.name and column.label in config],
        "not used:": [column.title for column in typed
                      if column.title and not column.means.name and column.label not in config],
        "no figures, left out:": left_out[:5],
        f"summaries, left out: line{'s' * (len(summaries) > 1)}": [str(lines[index]) for index in summaries[:9]],
    }
    more = {"no figures, left out:": f" and {len(left_out) - 5} more" * (len(left_out) > 5)}
    return "; ".join(f"{clause} {', '.join(items)}{more.get(clause, '')}" for clause, items in clauses.items() if items)


def _as_read(column: TypedColumn) -> str:
    """Say what a column was read as."""
    name, unit = column.means.name, column.means.unit
    words = spellings.WORDS.get(name, name.replace("_seconds", " time").replace("_", " "))
    if column.title.lower().replace("_", " ") == words:
        return column.title
    return f"{column.title} as {words}" + f" [{unit}]" * (unit not in words and f"[{unit}]" not in column.title)


def _summaries(typed: list[TypedColumn]) -> set[int]:
    """Return the indices of the rows that summarise others: a total, a mean over the repeats above."""
    count = len(typed[0].texts)
    summaries: set[int] = set()
    for texts in (column.texts for column in typed[:3]):
        indices = {index for index, text in enumerate(texts) if SUMMARY.fullmatch(text)}
        if len(indices) == count:  # A column "statistic": the means are the results.
            indices = {index for index in indices if not re.match("(?i)mean|av|median|mittel", texts[index])}
        summaries |= indices
    return summaries if len(summaries) < count else set()


def _row(path: Path, line: int, index: int, typed: list[TypedColumn]) -> Row:
    """Return a row: numbers by the rules' columns, other cells by labels."""
    row: Row = {"row": line, "id": index, "where": path.name, "rounding": {}}
    for position, column in enumerate(typed):
        figure = column.figures[index] if column.figures else None
        if column.means.name and column.means.name not in spellings.TEXT:
            row[column.key] = figure.value if figure else None
            row["rounding"][column.key] = figure.rounding if figure else 0.0
            continue
        row[column.key] = figure.value if figure else column.texts[index] or None
        if figure and not column.means.spread:
            unread = f"unread_{'time_' * (column.means.unit in spellings.TIME)}{position}"
            row[unread], row["rounding"][unread] = figure.value, figure.rounding
    row["words"] = " ".join(column.texts[index] for column in typed if re.search(r"[^\W\d]", column.texts[index]))
    return row


def _completed(rows: list[Row], known: set[str]) -> tuple[list[Row], set[str]]:
    """Add what a table implies: workers named in a text, images/s of all workers from those of one."""
    if not {"size", "nodes"} & known:
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
    if {"worker_images_per_sec", "size"} <= known and "images_per_sec" not in known:
        for row in rows:
            each, count = row.get("worker_images_per_sec"), row.get("size")
            row["images_per_sec"] = each * count if each and count else None
            row["rounding"]["images_per_sec"] = row["rounding"]["worker_images_per_sec"] * (count or 1)
        known = known | {"images_per_sec"}
    return rows, known
