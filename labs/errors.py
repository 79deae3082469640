"""The one exception that is shown to a student as a single line."""


class LabError(Exception):
    """A mistake or an obstacle, told in one line that names the cause and the cure."""


def printable(text: str) -> str:
    """Return a text with its control characters escaped: printed raw, they could rewrite the reader's terminal."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
