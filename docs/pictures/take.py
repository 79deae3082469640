"""Extract README's picture of each lab from its executed notebook: the plot of the cell tagged `picture`."""

import base64
from pathlib import Path

import nbformat

from labs.run import atomic, catalogue
from labs.run.paths import ROOT


def picture(lab: str) -> bytes:
    """Return the plot (PNG) that represents a lab, from its notebook."""
    cells = nbformat.read(ROOT / f"notebooks/{lab}.ipynb", 4).cells
    (cell,) = [cell for cell in cells if "picture" in cell.metadata.get("tags", [])]
    (plot,) = [output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]
    return base64.b64decode(plot)


if __name__ == "__main__":
    for lab in catalogue.lab_names():
        with atomic.writing(Path(__file__).with_name(f"{lab}.png")) as file:
            file.write(picture(lab))
