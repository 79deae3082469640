"""Working copies of the notebooks: made without outputs, brought up to date, and kept once they were edited."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

from labs.cli import commands
from labs.run import catalogue
from labs.run.errors import LabError
from labs.run.paths import ROOT
from labs.tools.notebook import working_copies


def page(text: str, printed: str = "the answer") -> str:
    """Return a notebook with one cell, which has run."""
    output = nbformat.v4.new_output("stream", text=printed)
    cell = nbformat.v4.new_code_cell(text, id="a", execution_count=7, outputs=[output] * bool(printed))
    return nbformat.writes(nbformat.v4.new_notebook(cells=[cell]))


def sources(folder: Path) -> list[str]:
    return [json.loads(path.read_text())["cells"][0]["source"][0] for path in sorted(folder.glob("*.ipynb"))]


def test_the_copies_of_the_kits_notebooks_have_no_outputs_and_their_links_lead_into_the_kit(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work/kit").symlink_to(tmp_path)  # Last year's kit.
    assert working_copies.update(ROOT / "notebooks", tmp_path / "work") == []
    assert len(list(tmp_path.glob("work/*.ipynb"))) == len(catalogue.lab_names())
    assert (tmp_path / "work/kit/docs").samefile(ROOT / "docs")
    for copy in tmp_path.glob("work/*.ipynb"):
        ours, committed = (nbformat.read(path, 4) for path in (copy, ROOT / "notebooks" / copy.name))
        nbformat.validate(ours)
        assert [(cell.cell_type, cell.source) for cell in ours.cells] == [
            (cell.cell_type, cell.source.replace("](../", "](kit/")) for cell in committed.cells]
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in ours.cells)


@pytest.mark.parametrize("edited", [page("my answer", ""), page("one, first version", "my hour of training"), "broken"])
def test_a_copy_follows_its_notebook_until_it_is_edited(tmp_path, edited):
    folders = notebooks, work = tmp_path / "notebooks", tmp_path / "work"
    notebooks.mkdir()

    def write(version: str) -> None:
        for name in ("one", "two"):
            (notebooks / f"{name}.ipynb").write_text(page(f"{name}, {version} version"))

    write("zeroth")
    assert working_copies.update(*folders) == []
    copy = nbformat.read(work / "one.ipynb", 4)  # JupyterLab saves it in another order, and with its own metadata.
    copy.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(copy, work / "one.ipynb")
    write("first")
    assert working_copies.update(*folders) == []
    assert sources(work) == ["one, first version", "two, first version"]
    assert "the answer" not in (work / "one.ipynb").read_text()
    (work / "one.ipynb").write_text(edited)
    assert working_copies.update(*folders) == [], "its notebook is the one it was copied from"
    write("second")
    assert working_copies.update(*folders) == working_copies.update(*folders) == ["one.ipynb"]
    assert (work / "one.ipynb").read_text() == edited
    (work / "one.ipynb").rename(work / "mine.txt")
    assert working_copies.update(*folders) == []
    assert sources(work) == ["one, second version", "two, second version"]


def test_where_copies_cannot_be_written_one_line_names_the_cure(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LABS_WORK", str(tmp_path / "file/work"))
    with pytest.raises(LabError, match=r"cannot be written to .*/file/work: Not a directory; set LABS_WORK to"):
        commands.dispatch(["notebook", "--copy-only"])
