"""Execute notebooks in place, and save from each the plot that README shows.

    make notebooks                      all of them
    make notebook-run LAB=lab05         one
"""

import base64
import subprocess
import sys
from collections.abc import Sequence

import nbformat

from labs.run import atomic, catalogue
from labs.run.errors import LabError
from labs.run.paths import ROOT


def main(labs: Sequence[str]) -> None:
    """Execute the notebooks of some labs, by default of all.

    Args:
        labs: Names or numbers of labs.

    Raises:
        LabError: There is no such lab, or a cell failed: then its notebook is unchanged.
    """
    for lab in [catalogue.resolve(name) for name in labs] or catalogue.lab_names():
        notebook = ROOT / f"notebooks/{lab}.ipynb"
        command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", str(notebook)]
        if subprocess.run(command, check=False).returncode:
            raise LabError(f"notebooks/{lab}.ipynb is unchanged, because a cell failed; its traceback is above")
        with atomic.writing(ROOT / f"docs/pictures/{lab}.png") as file:
            file.write(picture(lab))


def picture(lab: str) -> bytes:
    """Return the plot (PNG) that README shows of a lab: from the cell of its notebook that is tagged `picture`."""
    cells = nbformat.read(ROOT / f"notebooks/{lab}.ipynb", 4).cells
    (cell,) = [cell for cell in cells if "picture" in cell.metadata.get("tags", [])]
    (plot,) = [output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]
    return base64.b64decode(plot)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LabError as problem:
        sys.exit(f"labs: error: {problem}")
