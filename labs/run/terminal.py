"""The terminal: notes, tables, and a line of progress that the next output replaces."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO

_lock = threading.Lock()


def columns() -> int:
    """Return the columns of the terminal for progress; 0 if there is none. `labs run` passes them to its workers."""
    if given := os.environ.get("LABS_TERMINAL"):
        return int(given)
    with contextlib.suppress(AttributeError, OSError, ValueError):  # Closed, or a notebook's: it is not a file.
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80 if sys.stderr.isatty() else 0
    return 0


def show_progress(text: str) -> None:
    """Show a text as the terminal's last line, until the next output; "" removes it."""
    if limit := columns():
        write(f"{text[:limit - 1]}\r", sys.stderr)


def write(text: str, stream: IO[str]) -> None:
    """Write text to a stream in place of the progress."""
    with _lock:
        if columns():
            with contextlib.suppress(OSError, ValueError):  # The terminal has been closed.
                # Erases the progress: the cursor rests at its start.
                print("\x1b[K", end="", file=sys.stderr, flush=True)
        stream.write(text)
        stream.flush()


def note(text: str) -> None:
    """Print a note to standard error, for what a student should know but need not act on."""
    write(f"labs: {text}\n", sys.stderr)


def table(rows: Sequence[Sequence[str]], left: bool = False) -> str:
    """Return rows of cells as columns of text, aligned right or left; the first row is the heading."""
    align: Callable[[str, int], str] = str.ljust if left else str.rjust
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [rows[0], ["-" * width for width in widths], *rows[1:]]
    return "\n".join("  ".join(map(align, line, widths)).rstrip() for line in lines)
