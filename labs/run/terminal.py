"""The terminal: its width, text folded to it, and a live line below all other output, on which seconds tick."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO

DROPPED_FIRST = ("first epoch, s", "nodes", "repeats", "s/epoch", "batch", "validation loss", "test loss", "lab",
                 "licence", "synthetic data")
"""Columns to drop, in this order, until a table fits its terminal."""


def width(stream: IO[str] | None = None) -> int | None:
    """Return the columns of the terminal that shows a stream, by default standard output; None if none does.

    A worker writes into pipes: `labs run` passes the widths of its output and error streams on, in LABS_TERMINAL.
    """
    given = re.fullmatch(r"([0-9]+),([0-9]+)", os.environ.get("LABS_TERMINAL", ""))
    if given:
        return int(given[2 if stream is sys.stderr else 1]) or None
    return columns(stream or sys.stdout)


def columns(stream: IO[str]) -> int | None:
    """Return the columns of a stream that is a terminal, 80 if it does not know them; None if it is not a terminal."""
    try:  # A notebook's stream is not a terminal, but has the server's file descriptor.
        return os.get_terminal_size(stream.fileno()).columns or 80 if stream.isatty() else None
    except (AttributeError, OSError, ValueError):  # Closed, or not a file.
        return None


def folded(text: str, indent: int = 0, stream: IO[str] | None = None) -> str:
    """Return lines folded at spaces to the width of a stream's terminal, if it has one; folds are indented.

    Commands, in backticks or as the cure at the end of a line, stay whole, so that they can be pasted.
    """
    limit = width(stream)
    if limit is None:
        return text
    wrapper = textwrap.TextWrapper(limit, subsequent_indent=" " * indent, break_long_words=False,
                                   break_on_hyphens=False)

    def fold(line: str) -> str:
        whole = re.sub(r"`[^`]*`|-> .{1,55}$", lambda command: command[0].replace(" ", "\0"), line)
        return wrapper.fill(whole).replace("\0", " ")

    return "\n".join(line if len(line) <= limit else fold(line) for line in text.split("\n"))


class Live:
    """The last line of the terminal, which changes in place: a progress bar, or seconds that tick.

    Other output passes through `write`, and appears above it. The cursor rests at its start, so that what the terminal
    itself adds, such as ^C, is overwritten.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.text = ""

    def show(self, text: str, tail: str = "") -> None:
        """Show a text instead of the last one, cut to one line before its tail; "" removes it.

        A worker sends it to `labs run`, which tells it from a line by the carriage return at its end.
        """
        limit = (_live_columns() or width(sys.stderr) or 0) - 1
        with self._lock:
            if limit > 0 and (text or self.text):
                self.text = text and text[: limit - len(tail)] + tail
                frame = f"\r{self.text:{limit}}\r" if _live_columns() else f"{self.text}\r"
                with contextlib.suppress(OSError, ValueError):  # The terminal has been closed.
                    sys.stderr.write(frame)
                    sys.stderr.flush()

    def write(self, text: str, stream: IO[str]) -> None:
        """Write whole lines above the live line, to the terminal or wherever a stream leads."""
        with self._lock:
            shown = self.text
            self.show("")
            stream.write(text)
            stream.flush()
            self.show(shown)


live = Live()
"""The live line of this process, which has one terminal."""


def note(text: str) -> None:
    """Print a note to standard error, for what a student should know but need not act on."""
    live.write(folded(f"labs: {text}\n", 2, sys.stderr), sys.stderr)


def _live_columns() -> int | None:
    """Return the columns of the live line: those of standard error, or 72 in a notebook, which handles "\\r" too."""
    return 72 if hasattr(sys.stderr, "pub_thread") else columns(sys.stderr)


@contextlib.contextmanager
def every_second(action: Callable[[], None]) -> Iterator[None]:
    """Call a function during the block: at once, and then every second; only where there is a live line."""
    ended = threading.Event()

    def tick() -> None:
        action()
        while not ended.wait(1):
            action()

    thread = threading.Thread(target=tick, name="labs-ticking", daemon=True)
    if _live_columns():
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.ident:
            thread.join()


@contextlib.contextmanager
def ticking(text: str) -> Iterator[None]:
    """Show a text and the seconds that have passed on the live line during the block, while nothing else is on it."""
    began = time.monotonic()

    def show() -> None:
        if not live.text or live.text.startswith(text[:20]):
            live.show(text, f" {time.monotonic() - began:.0f} s")

    try:
        with every_second(show):
            yield
    finally:
        live.show("")


def table(rows: Sequence[Sequence[str]], left: bool = False) -> str:
    """Return rows as columns of text, in the terminal's width; the first row is the heading.

    If there is a terminal and it is too narrow, headings are folded, then the columns in DROPPED_FIRST are dropped; a
    table that is still too wide becomes a list. No cell is ever cut.

    Args:
        rows: Cells as text.
        left: Align columns left and not right.
    """
    limit, align = width() or math.inf, str.ljust if left else str.rjust
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
            yield [*_lines([name.split() for name in narrow[0]], narrow[1:], align), *folded(note).split("\n")]
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
