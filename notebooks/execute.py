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
from labs.run.errors import ERROR_PREFIX, LabError
from labs.run.paths import ROOT, make_folders_absolute


def main(labs: Sequence[str]) -> None:
    """Execute the notebooks of some labs, by default of all.

    Args:
        labs: Names or numbers of labs.

    Raises:
        LabError: There is no such lab, or a cell failed: then its notebook is unchanged.
    """
    make_folders_absolute()  # A kernel runs in notebooks/.
    for lab in [catalogue.resolve(name) for name in labs] or catalogue.lab_names():
        _execute(f"notebooks/{lab}.ipynb")
        with atomic.writing(ROOT / f"docs/pictures/{lab}.png") as file:
            file.write(picture(lab))


def _execute(notebook: str) -> None:
    """Execute a notebook and save it; on Ctrl-C, wait until its kernel and its workers have ended."""
    words = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", str(ROOT / notebook)]
    process = subprocess.Popen(words)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise
    if code:
        raise LabError(f"a cell of {notebook} failed, as shown above; the file is unchanged")


def picture(lab: str) -> bytes:
    """Return the plot (PNG) that README shows of a lab: from the cell of its notebook that is tagged `picture`.

    Raises:
        LabError: The notebook does not have one such cell with one plot.
    """
    cells = nbformat.read(ROOT / f"notebooks/{lab}.ipynb", 4).cells
    tagged = [cell for cell in cells if "picture" in cell.metadata.get("tags", [])]
    plots = [output.data["image/png"] for cell in tagged for output in cell.outputs
             if "image/png" in output.get("data", {})]
    if len(tagged) != 1 or len(plots) != 1:
        raise LabError(f"notebooks/{lab}.ipynb needs one cell that is tagged `picture` and shows one plot; "
                       f"it has {len(tagged)} with {len(plots)} in all")
    return base64.b64decode(plots[0])


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LabError as problem:
        sys.exit(f"{ERROR_PREFIX}{problem}")
    except KeyboardInterrupt:
        sys.exit("labs: interrupted; the notebook is unchanged")
