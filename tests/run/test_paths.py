"""Paths that users give: `~` in all of them, and files that never end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from labs.cli import commands
from labs.datasets import locate
from labs.launch import mpirun
from labs.measure import timeline
from labs.run import cluster_state, paths
from labs.run.errors import LabError
from labs.run.options import Options

HOST_FILE = mpirun.HOST_FILES[0]
FOLDERS = {"LABS_DATA": paths.data_dir, "LABS_RESULTS": paths.results_dir, "LABS_CACHE": paths.cache_dir,
           "LABS_WORK": paths.work_dir, "LABS_TMPDIR": paths.temporary_dir, cluster_state.FOLDER: cluster_state.folder}


def test_a_tilde_is_the_home_folder_everywhere(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable, folder in FOLDERS.items():
        monkeypatch.setenv(variable, "~/mine")
        assert folder() == tmp_path / "mine"
        monkeypatch.delenv(variable)
    assert Options(results=Path("~/mine")).results == tmp_path / "mine"
    (tmp_path / "mnist.npz").touch()
    assert locate("mnist", "~/mnist.npz") == tmp_path / "mnist.npz"
    (tmp_path / "table.csv").write_text("workers,seconds_per_epoch\n1,20\n2,11\n")
    commands.dispatch(["lint", "~/table.csv"])
    assert capsys.readouterr().out.startswith("table.csv: ")
    (tmp_path / "hosts").write_text("node1 slots=2\n")
    assert mpirun.host_slots({HOST_FILE: "~/hosts"}) == {"node1": 2}


def test_folders_stay_where_they_are_for_a_program_that_runs_elsewhere(tmp_path, monkeypatch):
    assert FOLDERS.keys() == set(paths.FOLDERS)
    monkeypatch.chdir(tmp_path)
    for variable in FOLDERS:
        monkeypatch.setenv(variable, f"here/{variable}")
    paths.keep_folders()
    monkeypatch.chdir("/")
    assert {variable: folder() for variable, folder in FOLDERS.items()} == {
        variable: tmp_path / "here" / variable for variable in FOLDERS}
    monkeypatch.setenv("LABS_DATA", "")
    paths.keep_folders()
    assert paths.data_dir() == paths.ROOT / "data"


@pytest.mark.parametrize("kind", ["device", "pipe", "hole"])
def test_a_file_without_an_end_is_refused(kind, tmp_path):
    """A device never ends, a pipe waits for a writer, and a hole may have a terabyte."""
    endless = tmp_path / kind
    if kind == "device":
        endless.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(endless)
    else:
        endless.touch()
        os.truncate(endless, 1 << 40)
    for read in (lambda: mpirun.host_slots({HOST_FILE: str(endless)}), lambda: timeline.read(endless)):
        with pytest.raises(LabError, match=r"it is not a regular file|it is larger than"):
            read()
