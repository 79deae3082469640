"""A folder of working copies for each test: `exercises.check` saves answers there."""

import pytest


@pytest.fixture(autouse=True)
def work(tmp_path, monkeypatch):
    """The folder."""
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("LABS_WORK", str(tmp_path / "work"))
    return tmp_path / "work"
