"""Working copies of the notebooks: made without outputs, brought up to date, and kept once they were edited."""

from __future__ import annotations

import json
import re
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


@pytest.fixture
def folders(tmp_path):
    """Two notebooks and their copies."""
    notebooks, work = tmp_path / "notebooks", tmp_path / "work"
    notebooks.mkdir()
    for name in ("one", "two"):
        (notebooks / f"{name}.ipynb").write_text(page(f"{name}, first version"))
    assert working_copies.update(notebooks, work) == []
    return notebooks, work


def sources(folder) -> list[str]:
    return [json.loads(path.read_text())["cells"][0]["source"][0] for path in sorted(folder.glob("*.ipynb"))]


def test_the_copies_of_the_kits_notebooks_have_no_outputs(tmp_path):
    assert working_copies.update(ROOT / "notebooks", tmp_path / "work") == []
    assert len(list(tmp_path.glob("work/*.ipynb"))) == len(catalogue.lab_names())
    for copy in tmp_path.glob("work/*.ipynb"):
        ours, committed = (nbformat.read(path, 4) for path in (copy, ROOT / "notebooks" / copy.name))
        nbformat.validate(ours)
        assert [(cell.cell_type, cell.source) for cell in ours.cells] == [
            (cell.cell_type, cell.source.replace("](../", "](kit/")) for cell in committed.cells]
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in ours.cells)


@pytest.mark.parametrize("saved", [False, True])
def test_an_unedited_copy_follows_its_notebook(folders, saved):
    notebooks, work = folders
    if saved:  # JupyterLab writes the keys in another order, and its own metadata.
        copy = nbformat.read(work / "one.ipynb", 4)
        copy.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(copy, work / "one.ipynb")
    (notebooks / "one.ipynb").write_text(page("one, second version"))
    assert working_copies.update(*folders) == []
    assert sources(work) == ["one, second version", "two, first version"]
    assert "the answer" not in (work / "one.ipynb").read_text()


@pytest.mark.parametrize("edited", [page("my answer", ""), page("one, first version", "my hour of training"), "broken"])
def test_an_edited_copy_stays_and_is_named_when_its_notebook_changes(folders, edited):
    notebooks, work = folders
    (work / "one.ipynb").write_text(edited)
    assert working_copies.update(*folders) == [], "its notebook is the one it was copied from"
    for name in ("one", "two"):
        (notebooks / f"{name}.ipynb").write_text(page(f"{name}, second version"))
    assert working_copies.update(*folders) == ["one.ipynb"]
    assert (work / "one.ipynb").read_text() == edited
    assert working_copies.update(*folders) == ["one.ipynb"], "until it is renamed"
    (work / "one.ipynb").rename(work / "mine.txt")
    assert working_copies.update(*folders) == []
    assert sources(work) == ["one, second version", "two, second version"]


def test_links_of_copies_outside_the_kit_lead_into_it(folders, tmp_path):
    notebooks, _ = folders
    (notebooks / "one.ipynb").write_text(page("see [the table](../data.csv)"))
    (tmp_path / "data.csv").write_text("a,b")
    mine = tmp_path / "home/mine"
    for kit in (tmp_path / "moved", tmp_path):  # The second time, the link leads to last year's kit.
        mine.mkdir(parents=True, exist_ok=True)
        (mine / working_copies.KIT).unlink(missing_ok=True)
        (mine / working_copies.KIT).symlink_to(kit)
        assert working_copies.update(notebooks, mine) == []
        link = re.search(r"\]\((.*)\)", sources(mine)[0])[1]
        assert (mine / link).read_text() == "a,b"


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir])
def test_a_students_own_kit_stays(folders, tmp_path, make):
    mine = tmp_path / "home/mine"
    mine.mkdir(parents=True)
    make(mine / working_copies.KIT)
    with pytest.raises(LabError, match=r"/mine/kit is in the way of a link to the kit; rename it"):
        working_copies.update(folders[0], mine)
    assert (mine / working_copies.KIT).exists()


def test_where_copies_cannot_be_written_one_line_names_the_cure(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LABS_WORK", str(tmp_path / "file/work"))
    with pytest.raises(LabError, match=r"cannot be written to .*/file/work: Not a directory; set LABS_WORK to"):
        commands.dispatch(["notebook", "--copy-only"])
