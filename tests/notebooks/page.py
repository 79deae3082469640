"""Reading a committed notebook: its prose, and what a cell has printed."""

from __future__ import annotations

import json

from labs.places import ROOT


def cells(lab: str) -> list[dict]:
    """Return the cells of a lab's notebook."""
    return json.loads((ROOT / f"notebooks/{lab}.ipynb").read_text())["cells"]


def prose(cells: list[dict]) -> str:
    """Return all Markdown."""
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def output(cells: list[dict], code: str) -> str:
    """Return the text that the one cell with this code has put out."""
    (cell,) = [cell for cell in cells if cell["cell_type"] == "code" and code in "".join(cell["source"])]
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell["outputs"]]
    return "".join("".join(text) for text in texts)
