"""Text for messages: counted nouns, and foreign text in one line."""


def plural(count: int, noun: str) -> str:
    """Return "1 core" or "2 cores"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def printable(text: object) -> str:
    """Return text with its control characters escaped: names of runs and files may come from other people."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in str(text))


def one_line(text: object, longest: int = 1000) -> str:
    """Return text as one printable line; its middle is left out if it is too long."""
    line, half = printable(" ".join(str(text).splitlines())), longest // 2
    return line if len(line) <= longest else f"{line[:half]} ... {line[-half:]}"
