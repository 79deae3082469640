"""Text for messages: counted nouns, and foreign text made safe for a terminal."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Return "1 core" or "2 cores"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def printable(text: object) -> str:
    """Return text with its control characters and escape sequences escaped.

    Names of runs, settings and files may come from other people. Unescaped, they could move the cursor, set a window's
    title or reverse the order of the text that follows; a lone surrogate could not even be printed.
    """
    return "".join(character if character.isprintable() else character.encode("unicode_escape").decode()
                   for character in str(text))


def short(text: object, longest: int = 1000) -> str:
    """Return text with its middle left out if it is too long: an error names the cause first and the cure last."""
    text, half = str(text), longest // 2
    left_out = f" ... ({len(text) - 2 * half:,} characters) ... "
    return text if len(text) <= longest else text[:half] + left_out + text[-half:]


def one_line(text: object) -> str:
    """Return text as one short line, escaped as by `printable`."""
    return short(printable(" ".join(str(text).splitlines())))


def printable_lines(text: object) -> str:
    """Return text with its line breaks, escaped as by `printable`."""
    return "\n".join(map(printable, str(text).split("\n")))
