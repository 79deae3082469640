"""Tables as text that fits the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from labs.run import terminal

DROPPED_FIRST = ("first epoch, s", "nodes", "repeats", "s/epoch", "batch", "validation loss", "test loss", "lab",
                 "licence", "synthetic data")
"""Columns to drop, in this order, until a table fits its terminal."""


def text(rows: Sequence[Sequence[str]], left: bool = False) -> str:
    """Return rows as columns of text, in the terminal's width; the first row is the heading.

    If there is a terminal and it is too narrow, headings are folded, then the columns in DROPPED_FIRST are dropped; a
    table that is still too wide becomes a list. No cell is ever cut.

    Args:
        rows: Cells as text.
        left: Align columns left and not right.
    """
    limit, align = terminal.width() or math.inf, str.ljust if left else str.rjust
    for lines in _forms(rows, align):
        if max(map(len, lines)) <= limit:
            break
    return "\n".join(line.rstrip() if left else line for line in lines)


def _forms(rows: Sequence[Sequence[str]], align: Callable[[str, int], str]) -> Iterator[list[str]]:
    """Yield the lines of a table, then those of ever narrower forms."""
    yield _lines([[name] for name in rows[0]], rows[1:], align)
    yield _lines([name.split() for name in rows[0]], rows[1:], align)
    narrow, gone = rows, list[str]()
    for name in DROPPED_FIRST:
        if name in narrow[0]:
            at = narrow[0].index(name)
            narrow, gone = [[*row[:at], *row[at + 1 :]] for row in narrow], [*gone, name]
            note = f"(too narrow for: {', '.join(gone)})"
            yield [*_lines([name.split() for name in narrow[0]], narrow[1:], align), *terminal.folded(note).split("\n")]
    width = max(map(len, rows[0]))
    yield [line for row in rows[1:]
           for line in ("", *(f"{name:>{width}}  {cell}" for name, cell in zip(rows[0], row, strict=True)))]


def _lines(head: Sequence[Sequence[str]], rows: Sequence[Sequence[str]],
           align: Callable[[str, int], str]) -> list[str]:
    """Return the lines of a table whose headings may have several words, one below the other."""
    height = max(map(len, head))
    above = zip(*([""] * (height - len(words)) + list(words) for words in head), strict=True)
    widths = [max(map(len, (*words, *cells)), default=0) for words, *cells in zip(head, *rows, strict=True)]
    cells = [*above, ["-" * width for width in widths], *rows]
    return ["  ".join(align(cell, width) for cell, width in zip(row, widths, strict=True)) for row in cells]
