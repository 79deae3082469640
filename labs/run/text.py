"""Text for messages: counted nouns, and names from elsewhere made safe for a terminal."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Return "1 core" or "2 cores"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def printable(text: object) -> str:
    """Return text as one line, with control characters and escape sequences written out.

    Names of runs, settings and files may come from others: raw, they could move the cursor, set a window's title or
    reverse the order of what follows. Half a surrogate pair could not even be printed.
    """
    return "".join(character if character.isprintable() else character.encode("unicode_escape").decode()
                   for character in str(text))


def one_line(text: object) -> str:
    """Return text of several lines as one, as `printable` returns it."""
    return printable(" ".join(str(text).splitlines()))


def printable_lines(text: object) -> str:
    """Return text with its line breaks, each line as `printable` returns it."""
    return "\n".join(map(printable, str(text).split("\n")))
