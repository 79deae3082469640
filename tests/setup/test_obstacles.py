"""Obstacles on a machine: each is one line with cause and cure, before anything is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEBIANS = (3, 11, 2)  # Debian 12's Python.


def test_no_python(clone):
    (clone.bin / clone.python).unlink()
    clone.fake_python("python3", DEBIANS)
    line = clone.obstacle("env")
    assert line.startswith("env: error: no Python from 3.11.4 to 3.13 "
                           "(looked at: python3.13 python3.12 python3.11 python3 python)")
    assert "PYTHON=/path/to/python3.1" in line


def test_a_python_that_cannot_make_environments(clone):
    python = clone.fake_python("python3.11", (3, 11, 4), venv=False)
    line = clone.obstacle("env", f"PYTHON={python}")
    assert line.endswith("cannot create virtual environments; apt-get install python3.11-venv")


@pytest.mark.parametrize(("system", "name", "ways"), [
    ("darwin", "macOS", ""), ("win32", "Windows", "WSL 2, "), ("cygwin", "Windows", "WSL 2, ")])
def test_another_system(clone, system, name, ways):
    """The Python of Apple's developer tools is 3.9: nobody has to install another one to read this."""
    (clone.bin / clone.python).unlink()
    clone.fake_python("python3", (3, 9, 6), system=system)
    clone.fake_python("python3.13", (3, 13, 0), system=system)
    assert clone.obstacle("env") == (f"env: error: this is {name}, and the kit needs Linux: {ways}a container, "
                                     "GitHub Codespaces or a cluster (docs/setup.md)")


def test_no_compiler(clone):
    assert clone.obstacle("env") == (
        "env: error: there is no C++ compiler (g++) for Horovod; apt-get install g++ or set CXX"
    )
    assert not clone.venv.exists()


@pytest.fixture
def compiler(clone):
    for name in ("g++", "as", "ld"):
        clone.link(name, Path(shutil.which(name)))


@pytest.fixture
def full_disk(clone):
    """Mount a disk of 10 MB as .venv."""
    clone.venv.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "none", clone.venv], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk is mounted for this, which needs root")
    yield
    subprocess.run(["umount", "-l", clone.venv], check=True)


@pytest.mark.usefixtures("compiler", "full_disk")
def test_a_disk_that_fills_up(clone):
    line = clone.obstacle("env", LABS_ENV_GB="0")
    assert line.startswith("env: error: the disk is full; free some space")
    assert not list(clone.venv.glob(".ready-*"))


def test_a_folder_with_other_files_is_left_alone(clone):
    (clone.folder / "thesis").mkdir()
    (clone.folder / "thesis" / "chapter1.tex").touch()
    command = [sys.executable, "-m", "venv", "--without-pip"]
    subprocess.run([*command, clone.folder / "mine"], check=True)
    subprocess.run([*command, "--prompt", "labs", clone.folder / "kits"], check=True)
    for folder in ("thesis", "mine", "."):
        assert "holds other files, which would be deleted; name a new folder" in clone.obstacle("env", f"VENV={folder}")
    assert (clone.folder / "thesis" / "chapter1.tex").exists()
    assert "no C++ compiler" in clone.obstacle("env", "VENV=kits")


def test_no_mpi_of_the_site(clone):
    line = clone.obstacle("env", "MPI=system")
    assert "no mpicxx on PATH; load the site's MPI" in line


class TestHorovod:
    """`make horovod` in the active environment."""

    @pytest.fixture
    def mpi(self, clone):
        clone.script("mpicxx", "")
        clone.script("mpirun", "echo 'mpirun (Open MPI) 4.1.4'")

    @pytest.mark.usefixtures("installed")
    def test_no_tensorflow(self, clone):
        assert f"no TensorFlow for {clone.active}/python; conda env create" in clone.obstacle("horovod")

    @pytest.mark.usefixtures("mpi")
    def test_no_cuda_compiler(self, clone, installed):
        if Path("/usr/local/cuda/bin/nvcc").exists():
            pytest.skip("this machine has a CUDA compiler")
        installed("tensorflow", "2.21.0")
        assert "no CUDA (nvcc, cuda_runtime.h, libcudart) for Horovod" in clone.obstacle("horovod")
