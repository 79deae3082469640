"""The terminal: its width, text folded to it, and a live line below all other output, on which seconds tick."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO


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
