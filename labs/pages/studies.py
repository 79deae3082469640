"""What `labs sweep` and `labs report` print of a lab's runs beside the speedups."""

from collections.abc import Sequence
from typing import Any

from labs.pages import lab06, lab11


def summary(lab: str, runs: Sequence[dict[str, Any]]) -> str:
    """Return the lab's own summary of some runs as text; an empty string if it has none."""
    own = {"lab06_memory": lab06.summary, "lab11_multinode": lab11.summary}
    return own[lab](runs) if lab in own else ""
