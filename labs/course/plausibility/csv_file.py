"""Reader of CSV files in many styles: encodings, delimiters, titles, a line of units."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

from labs.course.plausibility import columns
from labs.run import atomic
from labs.run.errors import LabError

Lines = list[tuple[int, list[str]]]
"""The cells of each line, with the number of the line in the file."""

LARGEST = 4 * 2**20
"""Bytes of the largest file that is read as a table."""

MOST_ROWS = 2_000


def read_lines(path: Path) -> tuple[list[str], Lines, str]:
    """Return the titles of the columns, the other lines with their numbers, and the delimiter."""
    text = _text(path)
    if not any(line.strip() for line in text.splitlines()):
        raise LabError(f"{path.name} holds no rows; its first line names the columns, the others are the results")
    delimiter, lines = max(((mark, _split(text, mark)) for mark in ",;\t|"), key=lambda split: _regular(split[1]))
    if not lines:
        raise LabError(f"{path.name}: unbalanced quotes: a closing quote is missing, or is not followed by "
                       f"{delimiter!r}; correct the quotes")
    start = next((index for index, (_, cells) in enumerate(lines) if sum(map(bool, cells)) > 1), 0)  # After a title.
    (_, names), rows = lines[start], lines[start + 1:]
    rows = [(line, cells) for line, cells in rows
            if cells != names and not (cells[0].startswith("#") and not any(cells[1:]))]
    while names and not names[-1] and not any(any(cells[len(names) - 1:]) for _, cells in rows):
        names = names[:-1]
    if rows and _is_units(rows[0][1]):
        names = [f"{name} ({unit})" if unit else name for name, unit in zip(names, rows.pop(0)[1], strict=False)]
    if not rows:
        raise LabError(f"{path.name} holds no rows; its first line names the columns, the others are the results")
    if len(rows) > MOST_ROWS:
        raise LabError(f"{path.name} holds {len(rows):,} rows; a table of results has at most {MOST_ROWS:,}")
    return names, [(line, _fitted(path, line, cells, names)) for line, cells in rows], delimiter


def _text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        LabError: It is not a regular file, too large, or not text.
    """
    try:
        content = atomic.read_bytes(path, LARGEST)
    except OSError as problem:
        raise LabError(f"{path}: {problem.strerror}; give a results folder or a CSV file") from None
    for encoding in ("utf-16",) if content[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig", "cp1252"):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if not re.search(r"[\x00-\x08\x0e-\x1f]", text):
            return text
    raise LabError(f"{path.name} is not a text table; save it as CSV in UTF-8")


def _split(text: str, delimiter: str) -> Lines:
    """Return the cells of the non-empty lines, with their line numbers; [] if a quote is not closed.

    A title may have a line break within its quotes. In a cell with both a line break and a delimiter, a quote was
    closed only in a later row.
    """
    source = text.splitlines(keepends=True)
    if delimiter == "|":  # The border of a Markdown table.
        source = [re.sub(r"^[\s|:=-]+$", "", line).strip().strip("|") for line in source]
    reader = csv.reader(source, delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except csv.Error:
        return []
    if any("\n" in cell and delimiter in cell for _, cells in lines for cell in cells):
        return []
    return [(number, cells) for number, cells in lines if any(cells)]


def _regular(lines: Lines) -> tuple[int, int]:
    """Return how many lines have the most frequent number of cells, and that number; (0, 1) if it is 1."""
    width, count = Counter(len(cells) for _, cells in lines).most_common(1)[0] if lines else (0, 0)
    return (count, width) if width > 1 else (0, 1)


def _is_units(cells: list[str]) -> bool:
    """Return whether a line below the titles holds the columns' units."""
    units = [cell for cell in cells if cell]
    return bool(units) and not re.search(r"\d", " ".join(units)) and all(
        columns.meaning(f"time ({unit.strip('()[]')})").unit for unit in units if unit not in "-x")


def _fitted(path: Path, line: int, cells: list[str], names: list[str]) -> list[str]:
    if any(cells[len(names):]):
        raise LabError(f"{path.name}, line {line}: {len(cells)} values for {len(names)} columns; "
                       "put a value that holds a comma into quotes")
    return (cells + [""] * len(names))[:len(names)]
