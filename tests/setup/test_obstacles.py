"""Obstacles on a machine: each is one line with cause and cure, before anything is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packages import read_pins

from tests.setup.clone import ROOT

# Reports itself as 3.11.2, Debian 12's version.
OLD_PYTHON = f"exec {sys.executable} -c 'import sys; sys.version_info = (3, 11, 2); exec(sys.argv[2])' \"$@\""


def test_no_python_3_11(clone):
    (clone.bin / "python3.11").unlink()
    line = clone.obstacle("env")
    assert line.startswith("env: error: no Python 3.11 from 3.11.4 on (looked at: python3.11 python3 python)")
    assert "make env PYTHON=" in line


def test_another_python(clone):
    old = clone.script("python3.10", OLD_PYTHON)
    assert f"(looked at: {old})" in clone.obstacle("env", f"PYTHON={old}")


def test_python_3_11_is_found_under_another_name(clone):
    (clone.bin / "python3.11").rename(clone.bin / "python")
    clone.script("python3", OLD_PYTHON)
    assert "C++" in clone.obstacle("env")


def test_no_compiler(clone):
    assert clone.obstacle("env") == (
        "env: error: there is no C++ compiler (g++) for Horovod; apt-get install g++ or set CXX"
    )
    assert not clone.venv.exists()


def test_a_compiler_that_does_not_compile(clone):
    clone.script("g++", "exit 1")
    assert "g++ does not compile C++17" in clone.obstacle("env")


def test_the_compiler_that_cxx_names(clone):
    assert "no C++ compiler (clang++)" in clone.obstacle("env", CXX="clang++")


@pytest.fixture
def compiler(clone):
    for name in ("g++", "as", "ld"):
        clone.link(name, Path(shutil.which(name)))


@pytest.mark.usefixtures("compiler")
def test_too_little_space(clone):
    line = clone.obstacle("env", LABS_ENV_GB="1000000")
    assert "GB are free for" in line
    assert "1e+06 are needed" in line
    assert not clone.venv.exists()


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
def test_a_small_disk(clone):
    assert "0.0 GB are free for" in clone.obstacle("env")


@pytest.mark.usefixtures("compiler", "full_disk")
def test_a_disk_that_fills_up(clone):
    line = clone.obstacle("env", LABS_ENV_GB="0")
    assert line.startswith("env: error: the disk is full; free some space")
    assert not list(clone.venv.glob(".ready-*"))


def test_keras_3_in_the_environment(clone):
    stamp = clone.stamp()
    (clone.site / "keras-3.5.0.dist-info").mkdir()
    os.utime(stamp, (1, 1))  # Any installation makes site-packages newer than the stamp.
    for _ in range(2):  # After the first refusal the second run must not start from scratch.
        line = clone.obstacle("env")
        assert "Keras 3.5.0 is in .venv" in line
        assert "rm -r .venv" in line


def test_no_mpi_of_the_site(clone):
    line = clone.obstacle("env", "MPI=system")
    assert "no mpicxx on PATH; load the site's MPI" in line


def test_half_an_mpi_of_the_site(clone):
    clone.script("mpicxx", "")
    assert "no mpirun on PATH" in clone.obstacle("env", "MPI=system")


def test_a_word_that_is_no_mpi(clone):
    assert "there is no MPI=mpich" in clone.obstacle("env", "MPI=mpich")


class TestHorovod:
    """`make horovod` in the active environment."""

    @pytest.fixture
    def mpi(self, clone):
        clone.script("mpicxx", "")
        clone.script("mpirun", "echo 'mpirun (Open MPI) 4.1.4'")

    def test_another_python(self, clone):
        clone.script("python", OLD_PYTHON)
        assert "the active Python (python) is not 3.11.4" in clone.obstacle("horovod")

    @pytest.mark.usefixtures("installed")
    def test_no_tensorflow(self, clone):
        assert f"no TensorFlow for {clone.active}/python; conda env create" in clone.obstacle("horovod")

    def test_keras_3(self, clone, installed):
        installed("tensorflow", "2.16.1")
        installed("keras", "3.3.3")
        line = clone.obstacle("horovod")
        assert f"Keras 3.3.3 is in {clone.active.parent}" in line
        assert f"pip install keras=={read_pins(ROOT)['keras']}" in line

    def test_no_mpi(self, clone, installed):
        installed("tensorflow", "2.15.1")
        assert "no mpicxx on PATH" in clone.obstacle("horovod")

    @pytest.mark.usefixtures("mpi")
    def test_no_cuda_compiler(self, clone, installed):
        if Path("/usr/local/cuda/bin/nvcc").exists():
            pytest.skip("this machine has a CUDA compiler")
        installed("tensorflow", "2.15.1")
        assert "no CUDA (nvcc, cuda_runtime.h, libcudart) for Horovod" in clone.obstacle("horovod")

    @pytest.mark.usefixtures("mpi")
    def test_no_nccl(self, clone, installed, tmp_path):
        if Path("/usr/include/nccl.h").exists():
            pytest.skip("this machine has NCCL")
        installed("tensorflow", "2.15.1")
        for name in ("bin/nvcc", "include/cuda_runtime.h", "lib/libcudart.so"):
            (tmp_path / "cuda" / name).parent.mkdir(parents=True)
            (tmp_path / "cuda" / name).touch()
        line = clone.obstacle("horovod", HOROVOD_CUDA_HOME=str(tmp_path / "cuda"))
        assert "no NCCL (nccl.h and libnccl.so)" in line

    @pytest.mark.usefixtures("mpi")
    def test_no_compiler_for_cpus(self, clone, installed):
        installed("tensorflow", "2.15.1")
        assert "no C++ compiler" in clone.obstacle("horovod", HOROVOD_GPU_OPERATIONS="")
