"""Folders that users name: `~` is the home folder, and they stay where they are for programs that run elsewhere."""

import os
import tempfile

import pytest

from labs.run import cluster_state, paths

FOLDERS = {"LABS_DATA": paths.data_dir, "LABS_RESULTS": paths.results_dir,
           "LABS_WORK": paths.work_dir, cluster_state.FOLDER: cluster_state.folder}


def test_folders_that_users_name(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for variable, folder in FOLDERS.items():
        monkeypatch.setenv(variable, "~/mine")
        assert folder() == tmp_path / "mine"
        monkeypatch.setenv(variable, f"here/{variable}")
    paths.make_folders_absolute()
    monkeypatch.chdir("/")
    for variable, folder in FOLDERS.items():
        assert folder() == tmp_path / "here" / variable
    monkeypatch.setenv("LABS_DATA", "")
    assert paths.data_dir() == paths.ROOT / "data"


@pytest.mark.parametrize("make", [lambda folder: folder.touch(), lambda folder: folder.symlink_to(folder.parent),
                                  lambda folder: (folder.mkdir(), folder.chmod(0o777))], ids=["file", "link", "open"])
def test_a_temporary_folder_that_others_may_have_made_is_not_used(make, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    make(tmp_path / f"labs-{os.getuid()}")
    with pytest.raises(OSError, match=r"only this user|File exists"):
        paths.own_temporary_dir()
