"""Text made safe for a terminal: control characters and escape sequences are shown, not sent."""

from __future__ import annotations


def line(text: object) -> str:
    """Return text as one line in which whatever could move the cursor, change a title or reverse the order is escaped.

    Names of runs, settings and files may come from others; half a surrogate pair could not even be printed.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def lines(text: object) -> str:
    """Return text with its line breaks, each of its lines as `line` returns it."""
    return "\n".join(map(line, str(text).split("\n")))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
