"""LabError, the exception that a student sees as one line, and the parts of such a line."""

ERROR_PREFIX = "labs: error: "
"""Start of an error line of `labs`; a launcher recognises its workers' errors by it."""
CURE_SEPARATOR = "; "
"""Separates the cause from the cure in an error line."""
NO_GLOO = "this Horovod was built without Gloo"
"""The cause where a run needs Gloo; conda-forge's Horovod has none."""
PROOF_PREFIX = "proof: "
"""Start of the line with the verdict of setup/proof.py."""


class LabError(Exception):
    """A mistake or an obstacle; its message is one line that names the cause and the cure."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows instead of a traceback."""
        return [f"{ERROR_PREFIX}{self}"]


def quoted(text: str) -> str:
    """Return text in quotes, shortened, with control characters and escape sequences escaped."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
