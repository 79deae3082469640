"""Loads TensorFlow, then Horovod, and says what came: a program of its own, since a broken library ends its process.

    python -m labs.checks.import_probe      # one line of JSON for each of the two
"""

from __future__ import annotations

import ctypes
import json
import re
import time
from pathlib import Path
from typing import Any


def say(**facts: Any) -> None:
    """Print what is known, at once: the next import may end this process."""
    print(json.dumps(facts), flush=True)


def mpi_library() -> str:
    """Return what the MPI library that is loaded calls itself, or "" where none is."""
    found = re.search(r"/\S*/libmpi\.so\S*", Path("/proc/self/maps").read_text())
    if not found:
        return ""
    name = ctypes.create_string_buffer(8192)  # MPI_MAX_LIBRARY_VERSION_STRING of the MPI that has the largest.
    ctypes.CDLL(found[0]).MPI_Get_library_version(name, ctypes.byref(ctypes.c_int()))
    return name.value.decode(errors="replace")


def main() -> None:
    """Load both."""
    began = time.monotonic()
    import tensorflow as tf

    # TensorFlow loads its Keras when it is first used, so here.
    say(tensorflow=tf.__version__, keras=tf.keras.Model.__module__, gpus=len(tf.config.list_physical_devices("GPU")),
        seconds=time.monotonic() - began)
    import horovod
    import horovod.tensorflow as hvd

    say(horovod=horovod.__version__, mpi=hvd.mpi_built(), gloo=hvd.gloo_built(), nccl=bool(hvd.nccl_built()),
        library=mpi_library())


if __name__ == "__main__":
    main()
