"""Paths that users give: `~` in all of them, what no path can be, and files that never end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from labs.cli import commands
from labs.datasets import arrays, decode, fetch
from labs.launch import mpirun
from labs.measure import timeline
from labs.run import cluster_state, paths
from labs.run.errors import LabError
from labs.run.options import Options

HOST_FILE = mpirun.HOST_FILES[0]
FOLDERS = {"LABS_DATA": paths.data_dir, "LABS_RESULTS": paths.results_dir, "LABS_CACHE": paths.cache_dir,
           "LABS_TMPDIR": paths.temporary_dir, cluster_state.FOLDER: cluster_state.folder}
OPTIONS = {"--results": lambda path: Options(results=path).results, "--data": lambda path: fetch.locate("mnist", path)}
COMMANDS = {  # A command line of each option that names a file or a folder; the path ends it.
    "lint": ["lint"], "report": ["report", "--results"], "output": ["report", "--output"],
    "markdown": ["report", "--markdown"], "csv": ["results", "--csv"],
    "sweep": ["sweep", "lab04", "--list", "--results"],
    "accept-gpu": ["accept-gpu", "--list", "--results"], "share": ["cluster", "up", "--share"],
}
IMPOSSIBLE = ["a" * 5000, "a/" * 1000, f"{'a' * 250}/" * 15, "loop/x", "~nosuchuser/x", "a\0b"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home folder, in which the test works."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_tilde_is_the_home_folder_everywhere(home, monkeypatch, capsys):
    (home / "mnist.npz").touch()
    for variable, folder in FOLDERS.items():
        monkeypatch.setenv(variable, "~/mine")
        assert folder() == home / "mine"
        monkeypatch.delenv(variable)
    assert OPTIONS["--results"](Path("~/mine")) == home / "mine"
    assert OPTIONS["--data"]("~/mnist.npz") == home / "mnist.npz"
    (home / "table.csv").write_text("workers,epoch_seconds\n1,20\n2,11\n")
    commands.dispatch(["lint", "~/table.csv"])
    assert capsys.readouterr().out.startswith("table.csv: ")
    (home / "hosts").write_text("node1 slots=2\n")
    assert mpirun.host_slots({HOST_FILE: "~/hosts"}) == {"node1": 2}


@pytest.mark.parametrize("path", IMPOSSIBLE, ids=lambda path: path[:10])
def test_what_no_path_can_be_is_refused_in_one_line(home, monkeypatch, path):
    (home / "loop").symlink_to("loop")
    attempts = [lambda each=each: each(path) for each in OPTIONS.values()]
    attempts += [lambda words=words: commands.dispatch([*words, path]) for words in COMMANDS.values()]
    attempts += [lambda: mpirun.host_slots({HOST_FILE: path}),
                 lambda: cluster_state.folder({cluster_state.FOLDER: path})]
    for variable in FOLDERS if "\0" not in path else ():
        monkeypatch.setenv(variable, path)
    attempts += FOLDERS.values() if "\0" not in path else []
    for attempt in attempts:
        with pytest.raises(LabError) as refused:
            attempt()
        assert "choose another path" in str(refused.value)
        assert len(str(refused.value)) < 200


@pytest.fixture(params=["device", "pipe", "hole"])
def endless(request, tmp_path):
    """A path of what must not be read as a whole: it never ends, it waits for a writer, or it has a terabyte."""
    if request.param == "device":
        if not os.access("/dev/zero", os.R_OK):
            pytest.skip("no /dev/zero")
        return Path("/dev/zero")
    path = tmp_path / request.param
    if request.param == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    return path


def test_a_file_without_an_end_is_refused(endless):
    readers = {
        "job file": lambda: commands.dispatch(["queue", "--check", str(endless)]),
        "host file": lambda: mpirun.host_slots({HOST_FILE: str(endless)}),
        "timeline": lambda: timeline.read(endless),
    }
    for name, read in readers.items():
        with pytest.raises(LabError, match=r"it is not a regular file|it is larger than"):
            raise AssertionError(f"{name}: {read()}")


def test_a_data_set_without_an_end_is_refused(endless, tmp_path):

    for name in ("mnist.npz", "data_batch_1.bin", "wiki.mat", "a.png"):
        (tmp_path / name).symlink_to(endless)
    for read in (arrays.read_mnist, arrays.read_cifar10, arrays.read_wiki):
        with pytest.raises(LabError, match=r"it is not a regular file|it is larger than"):
            read(tmp_path)
    with pytest.raises(LabError, match="cannot decode"):
        decode.read_image(tmp_path / "a.png", 16)
