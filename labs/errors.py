"""The one exception that is shown to a student as a single line, and how such a line shows what was typed."""


class LabError(Exception):
    """A mistake or an obstacle, told in one line that names the cause and the cure."""


def quoted(text: str) -> str:
    """Return text from outside in quotes, short and printable: control characters and escape sequences are escaped."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def printable(message: str) -> str:
    """Return a message as one line, with control characters and escape sequences escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in " ".join(message.splitlines()))
