"""A committed notebook as the tests read it: its text, its code, what its cells print, and its tables."""

from __future__ import annotations

import json
import re
from typing import Any

from bs4 import BeautifulSoup

from labs.run.paths import ROOT

Cell = dict[str, Any]


def cells(lab: str) -> list[Cell]:
    """Return all cells of a lab's notebook."""
    return json.loads((ROOT / f"notebooks/{lab}.ipynb").read_text())["cells"]


def cell(lab: str, fragment: str) -> Cell:
    """Return the one code cell of a lab's notebook whose source holds a fragment."""
    (matching,) = [each for each in cells(lab) if each["cell_type"] == "code" and fragment in "".join(each["source"])]
    return matching


def prose(cells: list[Cell]) -> str:
    """Return all Markdown of some cells."""
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def output(cells: list[Cell], code: str) -> str:
    """Return the text that the one cell with this code has put out."""
    (cell,) = [cell for cell in cells if cell["cell_type"] == "code" and code in "".join(cell["source"])]
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell["outputs"]]
    return "".join("".join(text) for text in texts)


def printed(cell: Cell) -> str:
    """Return what a cell has printed."""
    return "".join("".join(output["text"]) for output in cell.get("outputs", []) if "text" in output)


def table(cell: Cell) -> dict[tuple[str, ...], dict[str, str]]:
    """Return the table that a cell shows: a row of texts by column name, by the texts of the row's index."""
    (page,) = ["".join(output["data"]["text/html"]) for output in cell["outputs"]
               if "text/html" in output.get("data", {})]
    head, body = (BeautifulSoup(page, "html.parser").find(part) for part in ("thead", "tbody"))
    levels = [[name.text for name in line.find_all("th") for _ in range(int(name.get("colspan", 1)))]
              for line in head.find_all("tr")]
    names = [" ".join(filter(None, column)) for column in zip(*levels, strict=True)]
    rows, index = {}, []
    for line in body.find_all("tr"):
        own = [name.text for name in line.find_all("th")]
        index = index[:len(index) - len(own)] + own  # pandas writes an outer index once for all of its rows.
        values = [value.text for value in line.find_all("td")]
        rows[tuple(index)] = dict(zip(names[-len(values):], values, strict=True))
    return rows


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
