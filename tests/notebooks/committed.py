"""A committed notebook as the tests read it: its text, its code and what its cells printed."""

from __future__ import annotations

import json
import re

from labs.places import ROOT


class Page:
    """The cells of a notebook."""

    def __init__(self, lab: str):
        cells = json.loads((ROOT / f"notebooks/{lab}.ipynb").read_text())["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        self.text = _joined("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        self.code = _joined("".join(cell["source"]) for cell in code)
        self.outputs = [_plain(output) for cell in code for output in cell["outputs"]]
        self.printed = _joined(self.outputs)

    def tables(self, column: str) -> list[str]:
        """Return the outputs that name a column."""
        return [output for output in self.outputs if column in output]


def _joined(texts) -> str:
    return "\n".join(texts)


def _plain(output: dict) -> str:
    text = output.get("text") or output.get("data", {}).get("text/plain", "")
    return re.sub(r"[ \t]+$", "", "".join(text), flags=re.M)
