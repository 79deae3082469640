"""Working copies of the notebooks: made, brought up to date, and kept once they were edited."""

from __future__ import annotations

import pytest

from labs.cli import notebook, working_copies


@pytest.fixture
def folders(tmp_path):
    """Two notebooks and their copies."""
    notebooks, work = tmp_path / "notebooks", tmp_path / "work"
    notebooks.mkdir()
    for name in ("one", "two"):
        (notebooks / f"{name}.ipynb").write_text(f"{name}, first version")
    assert working_copies.update(notebooks, work) == []
    return notebooks, work


def contents(folder) -> list[str]:
    return [path.read_text() for path in sorted(folder.glob("*.ipynb"))]


def test_each_notebook_has_a_copy(folders):
    notebooks, work = folders
    assert contents(work) == contents(notebooks)
    assert working_copies.update(*folders) == []


def test_an_edited_copy_stays_and_is_named_when_its_notebook_changes(folders):
    notebooks, work = folders
    (work / "one.ipynb").write_text("my answer")
    assert working_copies.update(*folders) == [], "its notebook is the one it was copied from"
    for name in ("one", "two"):
        (notebooks / f"{name}.ipynb").write_text(f"{name}, second version")
    assert working_copies.update(*folders) == ["one.ipynb"]
    assert contents(work) == ["my answer", "two, second version"]
    assert working_copies.update(*folders) == ["one.ipynb"], "until it is renamed"
    (work / "one.ipynb").rename(work / "one-mine.ipynb")
    assert working_copies.update(*folders) == []
    assert (work / "one.ipynb").read_text() == "one, second version"
    assert (work / "one-mine.ipynb").read_text() == "my answer"


def test_without_its_notes_it_overwrites_nothing(folders):
    _, work = folders
    (work / working_copies.COPIED).write_text("{")
    (work / "one.ipynb").write_text("my answer")
    assert working_copies.update(*folders) == ["one.ipynb"]
    assert contents(work) == ["my answer", "two, first version"]


def test_the_notebooks_open_in_place_where_copies_cannot_be_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(notebook, "ROOT", tmp_path)
    (tmp_path / notebook.WORK).write_text("a file, not a folder")
    assert notebook._folder() == "notebooks"
    assert "the notebooks open without copies: " in capsys.readouterr().out
