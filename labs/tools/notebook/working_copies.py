"""Working copies of the notebooks: students edit these, so that `git pull` never conflicts with their answers.

A copy has no outputs: they would give away the answers where a page asks for predictions.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from labs.run import atomic

KIT = "kit"  # Symbolic link to the kit, beside copies that are not in it: their links to its files work.
COPIED = ".copied.json"
"""File beside the copies: a digest of each notebook as it was copied. A copy that differs from it was edited or run."""


def update(notebooks: Path, work: Path) -> list[str]:
    """Copy the notebooks, except over edited copies; return the edited copies whose notebook has a new version."""
    work.mkdir(parents=True, exist_ok=True)
    apart, link = work.resolve().parent != notebooks.resolve().parent, work / KIT
    if apart and (link.is_symlink() or not link.exists()):  # It may lead to last year's kit.
        link.unlink(missing_ok=True)
        link.symlink_to(notebooks.parent.resolve())
    copied: dict[str, str] = json.loads((work / COPIED).read_text()) if (work / COPIED).exists() else {}
    outdated = []
    for notebook in sorted(notebooks.glob("*.ipynb")):
        page = _without_outputs(notebook.read_text())
        page = page.replace("](../", f"]({KIT}/") if apart else page
        copy, newest, last = work / notebook.name, _digest(page), copied.get(notebook.name)
        if not copy.exists() or (last != newest and _digest(copy.read_text(errors="replace")) in (last, newest)):
            atomic.write_text(copy, page)
            copied[notebook.name] = newest
        elif last != newest:
            outdated.append(notebook.name)
    atomic.write_json(work / COPIED, copied)
    return outdated


def _without_outputs(page: str) -> str:
    """Return a notebook without outputs and execution counts."""
    notebook = json.loads(page)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _digest(page: str) -> str:
    """Return a digest of a notebook's cells, since JupyterLab rewrites the rest; of a damaged one, of its text."""
    try:
        cells: Any = [(cell["cell_type"], "".join(cell["source"]), cell.get("outputs"))
                 for cell in json.loads(page)["cells"]]
    except (ValueError, TypeError, KeyError):
        cells = page
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()
