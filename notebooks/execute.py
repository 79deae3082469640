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
    """Execute the notebooks of some labs, by default of all; if a cell fails, its notebook is unchanged."""
    make_folders_absolute()  # A kernel runs in notebooks/.
    for lab in [catalogue.resolve(name) for name in labs] or catalogue.lab_names():
        process = subprocess.Popen([sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace",
                                    str(ROOT / f"notebooks/{lab}.ipynb")])
        try:
            code = process.wait()
        finally:
            process.wait()  # After Ctrl-C, until its kernel and its workers have ended.
        if code:
            raise LabError(f"a cell of notebooks/{lab}.ipynb failed, as shown above; the file is unchanged")
        with atomic.writing(ROOT / f"docs/pictures/{lab}.png") as file:
            file.write(picture(lab))


def picture(lab: str) -> bytes:
    """Return the plot (PNG) that README shows of a lab: from the cell of its notebook that is tagged `picture`."""
    cells = nbformat.read(ROOT / f"notebooks/{lab}.ipynb", 4).cells
    plots = [output.data["image/png"] for cell in cells if "picture" in cell.metadata.get("tags", [])
             for output in cell.outputs if "image/png" in output.get("data", {})]
    if len(plots) != 1:
        raise LabError(f"notebooks/{lab}.ipynb needs one cell that is tagged `picture` and shows one plot")
    return base64.b64decode(plots[0])


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (LabError, KeyboardInterrupt) as problem:
        sys.exit(f"{ERROR_PREFIX}{problem or 'interrupted; the notebook is unchanged'}")
