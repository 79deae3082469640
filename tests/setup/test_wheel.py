"""Horovod's wheel is built once per combination, also by concurrent and killed runs."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpu import WHEEL_RPATH, Gpu, find_gpu, link_cusolver
from horovod_wheel import PREFIX_RPATH, Build, environment
from machine import Mpi, find_mpi

from tests.setup.clone import ROOT

BUILD = Build("0.28.1", "2.21.0", "3.11", Mpi("openmpi-5.0.11", Path("/one/bin")))
NCCL = Gpu("NCCL-2.16.5-CUDA-12.2", {"HOROVOD_GPU_OPERATIONS": "NCCL"})


@pytest.mark.parametrize("change", [
    {"horovod": "0.28.2"}, {"tensorflow": "2.20.0"}, {"python": "3.12"}, {"gpu": NCCL}, {"movable": False},
    {"mpi": Mpi("openmpi-4.1.4", Path("/one/bin"))}], ids=lambda change: next(iter(change)))
def test_another_combination_has_another_wheel(change):
    assert dataclasses.replace(BUILD, **change).key != BUILD.key


def test_tensorflow_finds_cusolver_in_a_folder_where_it_looks(tmp_path):
    for wheel in ("cusolver", "cusparse"):
        (tmp_path / "nvidia" / wheel / "lib").mkdir(parents=True)
    (tmp_path / "nvidia/cusolver/lib/libcusolver.so.11").write_text("cuSOLVER")
    link_cusolver(tmp_path)
    link_cusolver(tmp_path)
    assert (tmp_path / "nvidia/cusparse/lib/libcusolver.so.11").read_text() == "cuSOLVER"


ASK = """
from pathlib import Path
import horovod_wheel
from horovod_wheel import Build, wheel
from machine import Mpi
from steps import Steps
horovod_wheel.PATCH = Path("patch")
build = Build("0.28.1", "2.21.0", "3.11", Mpi("openmpi-5.0.11", Path("/one/bin")))
print("\\n" + str(wheel(Steps(1, Path(f"log-{__import__('os').getpid()}")), build, Path("python").resolve())))
"""


@pytest.fixture
def ask(tmp_path):
    """Start a program that builds the wheel with a `pip wheel` of the given seconds."""
    (tmp_path / "horovod-0.28.1").mkdir()
    (tmp_path / "horovod-0.28.1" / "launch.py").write_text("unpickle\n")
    (tmp_path / "patch").write_text("--- a/launch.py\n+++ b/launch.py\n@@ -1 +1 @@\n-unpickle\n+refuse\n")
    env = os.environ | {"PYTHONPATH": str(ROOT / "setup"), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def start(seconds: float) -> subprocess.Popen:
        name = "horovod-0.28.1-cp311-cp311-linux_x86_64.whl"
        (tmp_path / "python").write_text(
            "#!/bin/bash\nwhile [ $1 != --wheel-dir ] && [ $1 != --dest ]; do shift; done\n"
            "if [ $1 = --dest ]; then tar czf $2/horovod-0.28.1.tar.gz horovod-0.28.1; exit; fi\n"
            f"echo half >$2/{name}; echo $$ >>built; sleep {seconds}; cat $3/launch.py >$2/{name}\n"
        )
        (tmp_path / "python").chmod(0o755)
        command = [sys.executable, "-c", ASK]
        return subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, start_new_session=True)

    return start


def test_two_at_once_build_once(ask, tmp_path):
    both = [ask(1), ask(1)]
    wheels = {process.communicate()[0].splitlines()[-1] for process in both}
    assert len(wheels) == 1
    assert Path(wheels.pop()).read_text() == "refuse\n"
    assert len((tmp_path / "built").read_text().split()) == 1


def test_a_killed_build_leaves_no_wheel(ask, tmp_path):
    killed = ask(60)
    while not (tmp_path / "built").exists():
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    wheel = Path(ask(0).communicate()[0].splitlines()[-1])
    assert wheel.read_text() == "refuse\n"
    assert {path.name for path in wheel.parent.iterdir()} == {wheel.name, ".lock"}


@pytest.mark.parametrize(("output", "version"), [
    ("mpirun (Open MPI) 4.1.4\n\nReport bugs to ...", "openmpi-4.1.4"),
    ("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307", "intelmpi-2021.9"),
    ("HYDRA build details:\n    Version:      4.0.2\n", "mpich-4.0.2"),
])
def test_the_sites_mpi_is_identified_by_mpiruns_version(tmp_path, output, version):
    for name in ("mpicxx", "mpirun"):
        (tmp_path / name).write_text(f"#!/bin/bash\necho '{output}'\n")
        (tmp_path / name).chmod(0o755)
    assert find_mpi(str(tmp_path)) == Mpi(version, tmp_path)


class TestGpu:
    """CUDA and NCCL, identified by their files."""

    @pytest.fixture(params=["cuda", "cuda/targets/x86_64-linux"], ids=["toolkit", "conda"])
    def cuda(self, request, tmp_path):
        for name in ("cuda/bin/nvcc", f"{request.param}/include/cuda_runtime.h", f"{request.param}/lib/libcudart.so"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("#!/bin/bash\necho 'Cuda compilation tools, release 12.2, V12.2.140'\n")
        (tmp_path / "cuda/bin/nvcc").chmod(0o755)
        self.include = str(tmp_path / request.param / "include")
        return tmp_path / "cuda"

    def nccl(self, home: Path, library: str) -> Path:
        for folder in ("include", "lib"):
            (home / folder).mkdir(parents=True)
        (home / "lib" / library).touch()
        version = "#define NCCL_MAJOR 2\n#define NCCL_MINOR 16\n#define NCCL_PATCH 5\n"
        (home / "include" / "nccl.h").write_text(version)
        return home

    def test_of_the_site(self, cuda, tmp_path):
        nccl = self.nccl(tmp_path / "nccl", "libnccl.so")
        gpu = find_gpu({"HOROVOD_CUDA_HOME": str(cuda), "HOROVOD_NCCL_HOME": str(nccl)})
        assert gpu.name == "NCCL-2.16.5-CUDA-12.2"
        assert gpu.options["LABS_CUDA_INCLUDE"] == self.include
        assert gpu.options["LABS_NCCL_LIBRARY"] == str(nccl / "lib" / "libnccl.so")
        assert not gpu.movable
        # The environment may have an nvcc, too, which Horovod would ask for the architectures.
        path = environment(dataclasses.replace(BUILD, gpu=gpu), Path("/env/bin/python"))["PATH"]
        assert path.startswith(f"{cuda}/bin:/env/bin:")

    def test_of_tensorflows_wheels(self, cuda, tmp_path, monkeypatch):
        monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "site-packages"))
        nccl = self.nccl(tmp_path / "site-packages" / "nvidia" / "nccl", "libnccl.so.2")
        gpu = find_gpu({"HOROVOD_CUDA_HOME": str(cuda)})
        assert gpu.options["LABS_NCCL_LIBRARY"] == str(nccl / "lib" / "libnccl.so.2")
        assert dataclasses.replace(BUILD, gpu=gpu).rpath == f"{PREFIX_RPATH};{WHEEL_RPATH}"

    def test_of_the_compilers_wheels(self, tmp_path, monkeypatch):
        monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "site-packages"))
        home = tmp_path / "site-packages" / "nvidia" / "cu13"
        for name in ("bin/nvcc", "include/cuda_runtime.h", "lib/libcudart.so.13"):
            (home / name).parent.mkdir(parents=True)
            (home / name).write_text("#!/bin/bash\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
        (home / "bin/nvcc").chmod(0o755)
        self.nccl(tmp_path / "site-packages" / "nvidia" / "nccl", "libnccl.so.2")
        gpu = find_gpu({})
        assert gpu.name == "NCCL-2.16.5-CUDA-13.0"
        assert gpu.options["HOROVOD_CUDA_HOME"] == str(home)
        assert environment(dataclasses.replace(BUILD, gpu=gpu), Path("/env/bin/python"))["NVCC_APPEND_FLAGS"] == (
            f"-L{home / 'lib'}"
        )
        assert gpu.movable
