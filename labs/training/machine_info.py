"""Machine and software of a worker, for its record: versions, host, cores, memory, GPUs, speed settings."""

from __future__ import annotations

import platform
import re
import socket
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import tensorflow as tf

from labs.run import cluster_state, environment, resources, speed_settings
from labs.training import keras_internals


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages on which a result depends."""
    # Asked themselves: their packages have other names in some environments (tensorflow-cpu, tf_keras).
    ours = {"python": platform.python_version(), "tensorflow": tf.__version__, "keras": keras_internals.VERSION}
    return ours | {package: metadata.version(package) for package in ("horovod", "numpy", "pillow", "labs")}


def machine() -> dict[str, Any]:
    """Return a description of this worker's node."""
    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "link": cluster_state.label(),
        "cores": resources.cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "onednn": keras_internals.onednn_enabled(),
        "variables": environment.recorded(),
        **speed_settings.horovod_settings(),
        "huge_pages_mb": huge_pages_mb(),
        "gpus": [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
                 for gpu in tf.config.list_physical_devices("GPU")],
    }


def huge_pages_mb() -> float:
    """Return how many MiB of this process are in huge pages: glibc may request them, but the kernel may refuse."""
    try:
        match = re.search(r"^AnonHugePages: +(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:  # Some kernels do not report it.
        return 0.0
    return int(match[1]) / 1024 if match else 0.0
