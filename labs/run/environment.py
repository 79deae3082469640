"""The environment of a run: variables that break it or falsify its results, and settings that speed it up.

A setting is here only if it makes a network of `make bench` more than 3 % faster, or a start a second shorter;
docs/speed.md has the measurements. Each is a default.
"""

import contextlib
import functools
import gc
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.abc import MetaPathFinder
from typing import Any

from labs.run.errors import LabError, quoted
from labs.run.paths import ROOT

ENVIRONMENT = {
    # TensorFlow does so by itself where the processor has instructions for neural networks (VNNI).
    "TF_ENABLE_ONEDNN_OPTS": "1",
    # Horovod: a rank that waits for the others gives its core to their training threads instead of spinning on it.
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # Between nodes, Open MPI asks before it sends more than 64 KiB. Two nodes that send to each other at once wait for
    # answers that queue behind their own data: the two directions of the link work one after the other.
    **dict.fromkeys(("OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_rndv_eager_limit",
                     "OMPI_MCA_btl_tcp_max_send_size"), str(16 * 2**20)),
}
"""Read when TensorFlow and MPI load."""
CYCLE_MS = 0.1
"""Horovod's cycle: milliseconds in which it collects tensors; its default of 1 is longer than a small model's step."""
FUSION_MB = 1
"""Horovod's fusion threshold: MiB of tensors that it copies into one message. It sends larger tensors uncopied."""
HOROVOD_DEFAULTS = {"HOROVOD_CPU_OPERATIONS": "mpi", "HOROVOD_CYCLE_TIME": "1.0",
                    "HOROVOD_FUSION_THRESHOLD": str(128 * 2**20)}
UNUSED = ("sklearn", "matplotlib", "IPython", "cv2")  # Keras imports them, for what no lab uses; it takes a second.
RECORDED = re.compile(r"TF_(XLA_FLAGS|DETERMINISTIC_OPS|CUDNN_\w+|(EN|DIS)ABLE_(?!ONEDNN_OPTS)\w+)|XLA_FLAGS"
                      r"|NVIDIA_TF32_OVERRIDE|(ONEDNN|DNNL)_\w+")
"""Variables that may change what TensorFlow computes, or how fast. Other TF_ are Terraform's, and may hold secrets."""
STUDENT, STUDENT_ID = "LABS_STUDENT", r"[A-Za-z0-9][A-Za-z0-9_.+=-]{0,99}"
"""The variable with a student's id, which is in records, file names and tables, and seeds the runs; and its form."""
_horovod_read: dict[str, str] = {}  # The environment that Horovod read when the kit started it in this process.
_TRUE = re.compile("1|true|yes|on", re.IGNORECASE).fullmatch
HARMFUL: dict[str, tuple[Callable[[str], Any], str]] = {
    "TF_USE_LEGACY_KERAS": (_TRUE, "makes TensorFlow load Keras 2, and the labs need Keras 3"),
    "KERAS_BACKEND": (lambda value: value not in ("", "tensorflow"),
                      "makes Keras use a backend other than TensorFlow"),
    "KERAS_MAX_EPOCHS": (bool, "makes Keras end training early"),
    "KERAS_MAX_STEPS_PER_EPOCH": (bool, "makes Keras end an epoch early"),
    "PYTHONOPTIMIZE": (lambda value: value.isdigit() and int(value) >= 2,
                       "removes docstrings, without which TensorFlow does not load"),
    "HOROVOD_CPU_OPERATIONS": (lambda value: value.lower() == "gloo" and "HOROVOD_RANK" not in os.environ,
                               "crashes workers that are connected by MPI (some labs have --backend gloo)"),
    "HOROVOD_AUTOTUNE": (_TRUE, "changes Horovod's settings while a run is measured"),
}
"""Variables that break a run or falsify it: which of their values do so, and how. horovodrun sets HOROVOD_RANK."""


def harmful() -> dict[str, str]:
    """Return this process's harmful variables: for each name "=VALUE" and what it does."""
    return {name: f"={value} {cause}" for name, (is_wrong, cause) in HARMFUL.items()
            if is_wrong(value := os.environ.get(name, ""))}


def refuse_harmful() -> None:
    """Raise LabError if a variable would end a run in a traceback or have it train something else."""
    for name, cause in harmful().items():
        raise LabError(f"{name}{cause}; unset {name}")


def recorded() -> dict[str, str]:
    """Return the variables of this process that belong in a record."""
    return {name: value for name, value in sorted(os.environ.items()) if value and RECORDED.fullmatch(name)}


def restore_keras(backend: Any) -> None:
    """Undo what a keras.json changes in `tf.keras.backend` of the numbers that a model computes."""
    backend.set_floatx("float32")
    backend.set_image_data_format("channels_last")
    backend.set_epsilon(1e-7)


def student_id() -> str | None:
    """Return the student's id, or None if `LABS_STUDENT` is not set; raise LabError if it is not an id."""
    text = os.environ.get(STUDENT) or None
    if text and not re.fullmatch(STUDENT_ID, text):
        raise LabError(f"{STUDENT}={quoted(text)} is not an id of letters, digits, '-', '_' and '.'; "
                       f"export {STUDENT}=s1234")
    return text


def personal_seed(text: str) -> int:
    """Return the seed that belongs to a student's id, or to a longer text that begins with it."""
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % 10**9


def set_horovod_defaults(nccl: bool) -> None:
    """Set Horovod's variables that are faster than its defaults and have no value yet, for workers of mpirun.

    Nothing was measured, and nothing is set, for NCCL and Gloo, and for messages between machines.
    """
    size, here = (os.environ.get(f"OMPI_COMM_WORLD_{what}", "1") for what in ("SIZE", "LOCAL_SIZE"))
    if size != "1" and not nccl and os.environ.get("HOROVOD_CPU_OPERATIONS") != "gloo":
        fusion = {"HOROVOD_FUSION_THRESHOLD": str(FUSION_MB * 2**20)} if here == size else {}
        for name, value in {"HOROVOD_CYCLE_TIME": str(CYCLE_MS), **fusion}.items():
            os.environ[name] = os.environ.get(name) or value  # Horovod: read by `hvd.init`; later it has no effect.
    _horovod_read.clear()
    _horovod_read.update(os.environ)


def horovod_environment() -> dict[str, str]:
    """Return the environment that Horovod has, with its defaults; this process's if the kit has not started it."""
    return HOROVOD_DEFAULTS | {name: value for name, value in (_horovod_read or os.environ).items() if value}


def horovod_settings() -> dict[str, float]:
    """Return the settings that Horovod has: its cycle in milliseconds and its fusion threshold in MiB."""
    has = horovod_environment()
    return {"cycle_time_ms": float(has["HOROVOD_CYCLE_TIME"]),
            "fusion_threshold_mb": float(has["HOROVOD_FUSION_THRESHOLD"]) / 2**20}


class HorovodsKerasLayer(MetaPathFinder):
    """Refuses the import of Horovod's own Keras layer, which is written for Keras 2, by any of its names."""

    def find_spec(self, name, path=None, target=None):
        if name == "horovod._keras":
            raise LabError("Horovod's own Keras layer never exchanges a gradient on Keras 3; use "
                           "`import horovod_keras3 as hvd`")


class TensorFlowImport(MetaPathFinder):
    """Imports TensorFlow or Keras, whichever is first, quietly: TensorFlow logs before its log level applies."""

    hidden: Iterable[str] = ()  # From Keras: UNUSED in a lab's worker, none in a student's script or notebook.

    def find_spec(self, name, path=None, target=None):
        if name not in ("tensorflow", "keras"):
            return None
        with contextlib.suppress(ValueError):  # Another thread imports the other package.
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def load_quietly(module) -> None:
                with _quiet_and_quick(self.hidden):
                    load(module)
                    restore_keras(importlib.import_module("keras").backend)  # TensorFlow loads it later.

            spec.loader.exec_module = load_quietly  # type: ignore[method-assign]
        return spec


@contextlib.contextmanager
def _quiet_and_quick(hidden: Iterable[str]) -> Iterator[None]:
    """In this block write nothing to file descriptor 2, collect no garbage, and find no package of `hidden`."""
    absent = dict.fromkeys(set(hidden) - set(sys.modules))
    sys.modules.update(absent)  # type: ignore[arg-type]  # None: Python's import fails.
    stderr = os.dup(2)
    gc.disable()
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        gc.freeze()  # Imported modules live as long as the process.
        gc.enable()
        os.dup2(stderr, 2)
        os.close(stderr)
        for name in absent:
            del sys.modules[name]


def hide_warnings() -> None:
    """Hide Python's warnings, unless the student asks for them: they are about the code of other packages."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


@functools.cache
def commit() -> str:
    """Return the kit's commit: "release-COMMIT" in an unpacked release, "unknown" if nothing says it."""
    with contextlib.suppress(OSError):
        return (ROOT / "RELEASE").read_text().strip()  # `make release` writes it.
    # Without the folder git would look into those above.
    git = ["git", f"--git-dir={ROOT}/.git", "rev-parse", "--short=12", "HEAD"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    return "unknown"
