"""Speed settings of a worker's process, with the measured gain of each; and the import of TensorFlow that applies them.

A setting is here only if it makes a network of `make bench` more than 3 % faster, or a start a second shorter. Each is
a default: a value that the student has set stays. Images/s on two cores unless said otherwise; details: docs/speed.md.

    setting                              without -> with          where
    oneDNN's convolutions                  527 -> 1,054           MNIST CNN, batch 128, processor without VNNI
    MPI yields its core while it waits    0.64 -> 0.93            scaling efficiency, MNIST CNN, batch 128, 2 workers
    huge pages                           2,529 -> 2,652 (+5 %)    MNIST CNN, batch 32, 2 workers
                                         1,147 -> 1,244 (+8 %)    6 M parameters, batch 32, 2 workers
    Horovod's cycle 1 -> 0.1 ms         32,237 -> 51,203          MLP, batch 32, 2 workers
    Horovod's fusion 128 -> 1 MiB        1,088 -> 1,171 (+8 %)    6 M parameters, batch 32, 2 workers
    Open MPI sends up to 16 MiB at once   0.52 -> 0.94            share of 100 Mbit/s, all-reduce of 4 MiB, 2 nodes
    packages hidden from Keras             3.8 -> 2.5 CPU s         each start of a worker; 637 -> 532 MiB
    no garbage collector in the import    22.2 -> 17.8 CPU s        a run of 23 steps, 2 workers; 12.4 -> 10.0 s
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from importlib.abc import MetaPathFinder

from labs.run import environment

ENVIRONMENT = {
    # TensorFlow does so by itself where the processor has instructions for neural networks (VNNI).
    "TF_ENABLE_ONEDNN_OPTS": "1",
    # Horovod: a rank that waits for the others gives its core to their training threads instead of spinning on it.
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # glibc asks for pages of 2 MiB: a step passes over weights and gradients many times.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    # Between nodes, Open MPI asks before it sends more than 64 KiB. Two nodes that send to each other at once wait for
    # answers that queue behind their own data: the two directions of the link work one after the other.
    **dict.fromkeys(("OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_rndv_eager_limit",
                     "OMPI_MCA_btl_tcp_max_send_size"), str(16 * 2**20)),
}
"""Read when TensorFlow and MPI load; GLIBC_TUNABLES when a process starts, so it holds for the workers that a command
starts."""

FOR_MEMORY = {"TF_ENABLE_ONEDNN_OPTS": "0", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}
"""For a study of memory: oneDNN keeps rearranged copies of the tensors, which a GPU does not; and memory in huge pages
is counted in whole pages."""

UNUSED = ("sklearn", "matplotlib", "IPython", "cv2")
"""Packages that Keras imports where they are installed, for wrappers and plots that no lab uses. They make its
import a second longer. A lab can import them after TensorFlow."""


CYCLE_MS = 0.1
"""Horovod's cycle: milliseconds for which it collects tensors before it exchanges them. Its default of 1 is longer than
a step of a small model. Over MPI, where waiting workers spin anyway, a short cycle costs nothing; over Gloo, 40 % of
a core per worker."""
FUSION_MB = 1
"""Horovod's fusion threshold: MiB of tensors that it collects into one message. Larger tensors are sent alone, without
a copy. With the default of 128 they are copied into a buffer with the others and back, by cores that have a model to
train."""

HOROVOD_DEFAULTS = {"HOROVOD_CPU_OPERATIONS": "mpi", "HOROVOD_CYCLE_TIME": "1.0",
                    "HOROVOD_FUSION_THRESHOLD": str(128 * 2**20)}
_horovod_read: dict[str, str] = {}
"""The environment that Horovod read when the kit started it in this process."""


def horovod_defaults(nccl: bool) -> dict[str, str]:
    """Return Horovod's environment variables that are faster than its defaults, for workers that mpirun has started.

    Nothing was measured, and nothing is set, for NCCL and Gloo, and for messages between machines.

    Args:
        nccl: Whether NCCL carries the gradients.
    """
    size, here = (os.environ.get(f"OMPI_COMM_WORLD_{what}", "1") for what in ("SIZE", "LOCAL_SIZE"))
    if size == "1" or nccl or os.environ.get("HOROVOD_CPU_OPERATIONS") == "gloo":
        return {}
    fusion = {"HOROVOD_FUSION_THRESHOLD": str(FUSION_MB * 2**20)} if here == size else {}
    return {"HOROVOD_CYCLE_TIME": str(CYCLE_MS), **fusion}


def set_horovod_defaults(nccl: bool) -> None:
    """Set those of `horovod_defaults` that have no value yet."""
    for name, value in horovod_defaults(nccl).items():  # Horovod: read by `hvd.init`.
        os.environ[name] = os.environ.get(name) or value


def remember_horovod() -> None:
    """Remember the environment that Horovod, about to start, will read: later changes have no effect on it."""
    _horovod_read.clear()
    _horovod_read.update(os.environ)


def horovod_environment() -> dict[str, str]:
    """Return the environment that Horovod has, with its defaults; this process's if the kit has not started it."""
    return HOROVOD_DEFAULTS | {name: value for name, value in (_horovod_read or os.environ).items() if value}


def horovod_settings() -> dict[str, float]:
    """Return the settings that Horovod has: its cycle in milliseconds and its fusion threshold in MiB."""
    cycle, fusion = (float(horovod_environment()[name]) for name in ("HOROVOD_CYCLE_TIME", "HOROVOD_FUSION_THRESHOLD"))
    return {"cycle_time_ms": cycle, "fusion_threshold_mb": fusion / 2**20}


NOISE = re.compile(r"WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR"
                   r"|[IW]\d{4} \d\d:\d\d:\d+\.\d+ .*"  # Abseil's format: level, date, time, thread, file, text.
                   r"|E\d{4} .* Unable to register cu\w+ factory: .*")
"""Lines that TensorFlow writes before its log level applies: information, warnings, and a false error of GPU builds
(two registrations of the same library). In a notebook they would be the first that a student sees."""


class TensorFlowImport(MetaPathFinder):
    """Imports TensorFlow and Keras, whichever is imported first, with filtered standard error and no garbage collector.

    Then it steps aside. It refuses to import them in an environment that breaks a run, and undoes what keras.json
    changes.
    """

    hidden: Iterable[str] = ()
    """The packages that it hides from Keras: UNUSED in a lab's worker, none in a student's script or notebook."""

    def find_spec(self, name, path=None, target=None):
        if name not in ("tensorflow", "keras"):
            return None
        with gc_disabled():
            environment.refuse_harmful(horovod=False)  # A trial that a worker starts may have other Horovod settings.
        try:
            sys.meta_path.remove(self)
        except ValueError:  # Another thread imports the other package.
            return None
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def load_quietly(module) -> None:
                with filtered_stderr(), hidden(self.hidden), gc_disabled():
                    load(module)
                    # Keras and TensorFlow import each other: only now are both complete.
                    environment.restore_keras(importlib.import_module("tensorflow").keras.backend)

            spec.loader.exec_module = load_quietly  # type: ignore[method-assign]
        return spec


def hide_warnings() -> None:
    """Hide Python's warnings, unless the student asks for them: they are about the code of other packages.

    They may quote a record's text unescaped. The kit itself prints what a student should know.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


@contextlib.contextmanager
def hidden(packages: Iterable[str]) -> Iterator[None]:
    """Make imports of these packages fail during the block, unless they are already loaded."""
    absent = dict.fromkeys(set(packages) - set(sys.modules))
    sys.modules.update(absent)  # type: ignore[arg-type]  # None: Python's import fails.
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


@contextlib.contextmanager
def gc_disabled() -> Iterator[None]:
    """Turn the garbage collector off during the block, then exempt all objects from later collections.

    Imported modules live as long as the process.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


@contextlib.contextmanager
def filtered_stderr() -> Iterator[None]:
    """Hold back what is written to file descriptor 2, by C code too, and write it at the end without NOISE."""
    try:
        stderr = os.dup(2)
    except OSError:  # Closed, as for a daemon.
        yield
        return
    with open(os.memfd_create("labs-stderr"), "w+", errors="replace") as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            os.write(2, "".join(line for line in held if not NOISE.fullmatch(line.rstrip("\n"))).encode())
