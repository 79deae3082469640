"""The CUDA compiler and NCCL for Horovod's GPU operations: from conda, a wheel or the site."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from steps import SetupError

OR_CPU = "HOROVOD_GPU_OPERATIONS= builds for CPUs"
# From site-packages/horovod/tensorflow/mpi_lib.so to the NCCL that TensorFlow's wheels bring.
WHEEL_RPATH = "$ORIGIN/../../nvidia/nccl/lib"


@dataclasses.dataclass(frozen=True)
class Gpu:
    """What Horovod's GPU operations are built with: a readable name, and variables for the build."""

    name: str
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    movable: bool = True  # The libraries are part of the environment.
    rpath: str = ""


CPU = Gpu("CPU")


def find_gpu(environ: Mapping[str, str]) -> Gpu:
    """Return this machine's CUDA and NCCL, or those in HOROVOD_CUDA_HOME and HOROVOD_NCCL_HOME.

    Raises:
        SetupError: There is no CUDA compiler or no NCCL.
    """
    cuda, nccl = _cuda_home(environ), _nccl_home(environ)
    header, library = _cuda_file(cuda, "include", "cuda_runtime.h"), _cuda_file(cuda, "lib*", "libcudart.so*")
    assert header is not None  # `_cuda_home` has checked both.
    assert library is not None
    in_wheel = nccl == _wheel_home("nccl")
    options = {
        "HOROVOD_GPU_OPERATIONS": "NCCL",
        "HOROVOD_CUDA_HOME": str(cuda),
        "HOROVOD_NCCL_HOME": str(nccl),
        "HOROVOD_NCCL_LINK": "SHARED",  # Otherwise Horovod links a static NCCL if there is one.
        # Horovod's CMake files do not find these; setup/horovod.cmake passes them on.
        "LABS_CUDA_INCLUDE": str(header.parent),
        "LABS_CUDA_LIBRARY": str(library),
        "LABS_NCCL_LIBRARY": str(_nccl_library(nccl)),
        # The wheels' nvcc searches lib64/, but they have lib/ alone.
        "NVCC_APPEND_FLAGS": f"-L{library.parent}",
    }
    return Gpu(
        name=f"NCCL-{_nccl_version(nccl)}-CUDA-{_cuda_version(cuda)}",
        options=options,
        movable=in_wheel or nccl == Path(sys.prefix),
        rpath=WHEEL_RPATH if in_wheel else "",
    )


def link_cusolver(site_packages: Path) -> None:
    """Put cuSOLVER where TensorFlow 2.21 looks for it.

    TensorFlow opens cuSOLVER from libtensorflow_framework.so.2, whose search path (RUNPATH) has the folders of the
    other CUDA wheels, but not cuSOLVER's. Without cuSOLVER it reports no GPU and trains on the CPU.
    """
    for library in site_packages.glob("nvidia/cusolver/lib/libcusolver.so.*"):
        link = site_packages / "nvidia" / "cusparse" / "lib" / library.name
        if link.parent.is_dir() and not link.exists():
            link.symlink_to(Path("..", "..", "cusolver", "lib", library.name))


def _cuda_home(environ: Mapping[str, str]) -> Path:
    on_path = shutil.which("nvcc")
    named = [environ.get("HOROVOD_CUDA_HOME"), environ.get("CUDA_HOME"), str(_wheel_home("cu13"))]
    of_path = str(Path(on_path).resolve().parent.parent) if on_path else None
    for home in map(Path, filter(None, [*named, of_path, "/usr/local/cuda"])):
        needed = ("bin", "nvcc"), ("include", "cuda_runtime.h"), ("lib*", "libcudart.so*")
        if all(_cuda_file(home, *pair) for pair in needed):
            return home
    raise SetupError(
        "there is no CUDA (nvcc, cuda_runtime.h, libcudart) for Horovod; conda env create -f environment.yml or"
        f" pip install -c setup/constraints.txt -e .[nvcc] brings it, HOROVOD_CUDA_HOME names another, {OR_CPU}"
    )


def _cuda_file(home: Path, folder: str, name: str) -> Path | None:
    """Return a file of CUDA; in a conda environment CUDA is in targets/x86_64-linux/."""
    return next((path for top in ("", "targets/*/") for path in home.glob(f"{top}{folder}/{name}")), None)


def _cuda_version(cuda: Path) -> str:
    output = subprocess.run([cuda / "bin" / "nvcc", "--version"], capture_output=True, text=True).stdout
    release = re.search(r"release ([\d.]+)", output)
    return release[1] if release else "unknown"


def _nccl_home(environ: Mapping[str, str]) -> Path:
    for home in filter(None, [environ.get("HOROVOD_NCCL_HOME"), sys.prefix, str(_wheel_home("nccl")), "/usr"]):
        if Path(home, "include", "nccl.h").exists() and _nccl_library(Path(home)):
            return Path(home)
    raise SetupError(
        "there is no NCCL (nccl.h and libnccl.so) for Horovod; pip install -c setup/constraints.txt -e .[gpu] brings "
        f"it, HOROVOD_NCCL_HOME names another, {OR_CPU}"
    )


def _nccl_library(nccl: Path) -> Path | None:
    folders = (nccl / "lib", nccl / "lib64", nccl / "lib" / "x86_64-linux-gnu")
    candidates = [folder / name for name in ("libnccl.so", "libnccl.so.2") for folder in folders]
    return next((path for path in candidates if path.exists()), None)


def _nccl_version(nccl: Path) -> str:
    header = (nccl / "include" / "nccl.h").read_text()
    return ".".join(re.findall(rf"NCCL_{part}\s+(\d+)", header)[0] for part in ("MAJOR", "MINOR", "PATCH"))


def _wheel_home(name: str) -> Path:
    """Return where NVIDIA's wheels install NCCL ("nccl"), or the compiler of CUDA 13 ("cu13"); that of 12 has none."""
    return Path(sysconfig.get_path("purelib"), "nvidia", name)
