"""The one exception that is shown to a student as a single line, and how such a line shows what was typed."""


ERROR_PREFIX = "labs: error: "
"""How an error line of `labs` begins; a launcher recognises its workers' errors by it."""
CURE_SEPARATOR = "; "
"""Stands between the cause and the cure in an error line."""
PROOF_PREFIX = "proof: "
"""How the line with the verdict of setup/proof.py begins."""


class LabError(Exception):
    """A mistake or an obstacle, told in one line that names the cause and the cure."""


def quoted(text: str) -> str:
    """Return text from outside in quotes, short and printable: control characters and escape sequences are escaped."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
