"""A committed notebook as tests read it."""

import json
from typing import Any

from labs.run.paths import ROOT


def cells(lab: str) -> list[dict[str, Any]]:
    """Return all cells of a lab's notebook."""
    return json.loads((ROOT / f"notebooks/{lab}.ipynb").read_text())["cells"]
