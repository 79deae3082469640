"""Folders that users name: `~` is the home folder, and they stay where they are."""

from __future__ import annotations

from labs.run import cluster_state, paths

FOLDERS = {"LABS_DATA": paths.data_dir, "LABS_RESULTS": paths.results_dir,
           "LABS_WORK": paths.work_dir, cluster_state.FOLDER: cluster_state.folder}


def test_a_tilde_is_the_home_folder_everywhere(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable, folder in FOLDERS.items():
        monkeypatch.setenv(variable, "~/mine")
        assert folder() == tmp_path / "mine"


def test_folders_stay_where_they_are_for_a_program_that_runs_elsewhere(tmp_path, monkeypatch):
    assert FOLDERS.keys() == set(paths.FOLDERS)
    monkeypatch.chdir(tmp_path)
    for variable in FOLDERS:
        monkeypatch.setenv(variable, f"here/{variable}")
    paths.make_folders_absolute()
    monkeypatch.chdir("/")
    assert {variable: folder() for variable, folder in FOLDERS.items()} == {
        variable: tmp_path / "here" / variable for variable in FOLDERS}
    monkeypatch.setenv("LABS_DATA", "")
    paths.make_folders_absolute()
    assert paths.data_dir() == paths.ROOT / "data"
