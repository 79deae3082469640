"""Horovod's wheel, built once for each combination of TensorFlow, Python and MPI, and cached."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import re
import shutil
import tarfile
import tempfile
from pathlib import Path

from gpu import CPU, Gpu
from machine import Mpi, check_compiler, check_space
from packages import clean_environment
from steps import SetupError, Steps, locked

SETUP = Path(__file__).resolve().parent
TOOLCHAIN = SETUP / "horovod.cmake"
PATCH = SETUP / "horovod.patch"
# The wheel depends on the contents of these files.
RECIPE = (TOOLCHAIN, SETUP / "horovod_targets.cmake", SETUP / "gpu_stream.cc", PATCH)
PARTS = {
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITH_GLOO": "1",  # Elastic training and `horovodrun --gloo`.
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITHOUT_NVTX": "1",  # Markers for NVIDIA's profiler; only some machines have its headers.
}
# The path from <prefix>/lib/python3.13/site-packages/horovod/tensorflow/mpi_lib.so to <prefix>/lib.
PREFIX_RPATH = "$ORIGIN/../../../.."


@dataclasses.dataclass(frozen=True)
class Build:
    """Everything that identifies a wheel: what is compiled in, and where the loader searches its libraries."""

    horovod: str
    tensorflow: str
    python: str
    mpi: Mpi
    gpu: Gpu = CPU
    movable: bool = True  # The libraries are part of the environment, so the wheel fits any equal environment.

    @property
    def key(self) -> str:
        """The name of the wheel's cache folder: the versions, and a digest of everything else."""
        fixed = "" if self.movable else f"{self.mpi.folder} {self.gpu.options}"
        rest = repr((PARTS, [path.read_text() for path in RECIPE], self.rpath, fixed))
        digest = hashlib.sha256(rest.encode()).hexdigest()[:8]
        versions = f"horovod-{self.horovod}_tensorflow-{self.tensorflow}_python-{self.python}"
        return f"{versions}_{self.mpi.version}_{self.gpu.name}_{platform.machine()}_{digest}"

    @property
    def rpath(self) -> str:
        """The wheel's RPATH in CMake's notation; "" for absolute paths, which CMake sets itself."""
        return ";".join(filter(None, [PREFIX_RPATH, self.gpu.rpath])) if self.movable else ""

    @property
    def folder(self) -> Path:
        """The wheel's folder in the user's cache, which all clones share."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "labs-kit" / "horovod" / self.key


def cached(build: Build) -> Path | None:
    """Return the cached wheel, or None."""
    return next(iter(build.folder.glob("*.whl")), None)


def check(build: Build) -> None:
    """Check that this machine can build the wheel, unless the wheel is in the cache.

    Raises:
        SetupError: The machine has no suitable compiler or too little space.
    """
    if cached(build) is None:
        check_compiler()
        check_space(Path(tempfile.gettempdir()), build.folder)


def wheel(steps: Steps, build: Build, python: Path) -> Path:
    """Return the wheel from the cache, or build it there; of two concurrent runs, one builds and the other waits."""
    build.folder.mkdir(parents=True, exist_ok=True)
    with locked(build.folder / ".lock", " (waiting for another run that builds it)"):
        return cached(build) or _build(steps, build, python)


def _build(steps: Steps, build: Build, python: Path) -> Path:
    for left_by_a_killed_run in build.folder.glob(".building-*"):
        shutil.rmtree(left_by_a_killed_run)
    with tempfile.TemporaryDirectory(dir=build.folder, prefix=".building-") as folder:
        pip, env = [python, "-m", "pip"], environment(build, python)
        flags = ["--no-build-isolation", "--no-cache-dir", "--no-deps", "--no-binary", "horovod"]
        steps.run([*pip, "download", *flags, "--dest", folder, f"horovod=={build.horovod}"], env)
        with tarfile.open(next(Path(folder).glob("*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
        source = next(path for path in Path(folder).iterdir() if path.is_dir())
        patch(source, PATCH.read_text())
        steps.run([*pip, "wheel", "-v", *flags, "--wheel-dir", folder, source], env)
        built = next(Path(folder).glob("*.whl"))
        return built.rename(build.folder / built.name)  # On one file system, so atomic.


def patch(source: Path, diff: str) -> None:
    """Apply a unified diff. Each of its texts must occur exactly once; the program `patch` would also search nearby.

    Args:
        source: The folder with the files that the diff names.
        diff: The output of `diff -ru a b`.

    Raises:
        SetupError: The source is not the version for which the diff was made.
    """
    _, *parts = re.split(r"^--- a/(\S+)\n\+\+\+ .*\n", diff, flags=re.MULTILINE)
    for name, hunks in zip(parts[::2], parts[1::2], strict=True):
        text = (source / name).read_text()
        for hunk in re.split(r"^@@.*\n", hunks, flags=re.MULTILINE)[1:]:
            before, after = ("".join(line[1:] for line in hunk.splitlines(keepends=True) if line[0] != other)
                             for other in "+-")
            if text.count(before) != 1:
                raise SetupError(f"{PATCH} is for another version of Horovod: {name} differs")
            text = text.replace(before, after)
        (source / name).write_text(text)


def environment(build: Build, python: Path) -> dict[str, str]:
    """Return the environment variables of Horovod's build; CMake and MPI beside `python` come first on PATH."""
    # conda's compiler sets CUDAARCHS, but Horovod names the architectures itself.
    ignored = ("HOROVOD_", "CUDAARCHS")
    env = {name: value for name, value in clean_environment().items() if not name.startswith(ignored)}
    cores = min(len(os.sched_getaffinity(0)), 8)  # One compiler takes up to a gigabyte.
    # Horovod asks the first nvcc on PATH for the GPU architectures, even where it compiles with another one.
    cuda = build.gpu.options.get("HOROVOD_CUDA_HOME", "/usr")
    first = [f"{cuda}/bin"] if cuda != "/usr" else []  # /usr/bin may also have another CMake and MPI.
    ours = {
        "CMAKE_TOOLCHAIN_FILE": str(TOOLCHAIN),
        "LABS_RPATH": build.rpath,
        # conda's linker flags would make the wheel search for its libraries in this environment only.
        "LDFLAGS": re.sub(r"-Wl,-rpath,\S+ ?", "", env.get("LDFLAGS", "")),
        "MAKEFLAGS": f"-j{cores}",
        "PATH": os.pathsep.join([*first, str(python.parent), env["PATH"]]),
    }
    return env | PARTS | build.gpu.options | ours
