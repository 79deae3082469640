"""Horovod's wheel is built once per combination, also by concurrent and killed runs."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gpu import find_gpu
from horovod_wheel import Build, environment
from machine import Mpi

from tests.setup.clone import ROOT
from tests.tools.cluster.client import until

BUILD = Build("0.28.1", "2.21.0", "3.11", Mpi("openmpi-5.0.11", Path("/one/bin")))
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


def test_a_killed_build_leaves_no_wheel_and_two_at_once_build_once(ask, tmp_path):
    killed = ask(60)
    until((tmp_path / "built").exists, 60)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    wheels = {process.communicate()[0].splitlines()[-1] for process in [ask(1), ask(1)]}
    assert len(wheels) == 1
    wheel = Path(wheels.pop())
    assert wheel.read_text() == "refuse\n"
    assert len((tmp_path / "built").read_text().split()) == 2
    assert {path.name for path in wheel.parent.iterdir()} == {wheel.name, ".lock"}


def test_another_combination_has_another_wheel():
    for change in ({"horovod": "0.28.2"}, {"tensorflow": "2.20.0"}, {"python": "3.12"}, {"movable": False},
                   {"mpi": Mpi("openmpi-4.1.4", Path("/one/bin"))}):
        assert dataclasses.replace(BUILD, **change).key != BUILD.key


def test_cuda_and_nccl_are_those_of_the_site_or_of_the_wheels(tmp_path, monkeypatch):
    site, wheels = tmp_path / "site", tmp_path / "site-packages/nvidia"
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(wheels.parent))
    for home, library in ((site, "libcudart.so"), (wheels / "cu13", "libcudart.so.13")):
        for name in ("bin/nvcc", "include/cuda_runtime.h", f"lib/{library}"):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text("#!/bin/bash\necho 'Cuda compilation tools, release 12.2, V12.2.140'\n")
        (home / "bin/nvcc").chmod(0o755)
    for home, library in ((site / "nccl", "libnccl.so"), (wheels / "nccl", "libnccl.so.2")):
        for folder in ("include", "lib"):
            (home / folder).mkdir(parents=True)
        (home / "lib" / library).touch()
        (home / "include/nccl.h").write_text("#define NCCL_MAJOR 2\n#define NCCL_MINOR 16\n#define NCCL_PATCH 5\n")
    own = find_gpu({"HOROVOD_CUDA_HOME": str(site), "HOROVOD_NCCL_HOME": str(site / "nccl")})
    assert (own.name, own.movable) == ("NCCL-2.16.5-CUDA-12.2", False)
    assert own.options["LABS_NCCL_LIBRARY"] == str(site / "nccl/lib/libnccl.so")
    # The environment may have an nvcc, too, which Horovod would ask for the architectures.
    path = environment(dataclasses.replace(BUILD, gpu=own), Path("/env/bin/python"))["PATH"]
    assert path.startswith(f"{site}/bin:/env/bin:")
    packed = find_gpu({})
    assert packed.movable
    assert packed.options["HOROVOD_CUDA_HOME"] == str(wheels / "cu13")
    assert packed.options["LABS_NCCL_LIBRARY"] == str(wheels / "nccl/lib/libnccl.so.2")
