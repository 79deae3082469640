"""Imports TensorFlow, then Horovod, and reports on each: a separate program, since a broken library kills its process.

    python -m labs.tools.check.import_probe      # one line of JSON for each
"""

from __future__ import annotations

import ctypes
import json
import re
import time
from pathlib import Path
from typing import Any


def report(**facts: Any) -> None:
    """Print facts at once: the next import may kill this process."""
    print(json.dumps(facts), flush=True)


def mpi_library() -> str:
    """Return the version text of the loaded MPI library, or an empty string if none is loaded."""
    library = re.search(r"/\S*/libmpi\.so\S*", Path("/proc/self/maps").read_text())
    if not library:
        return ""
    name = ctypes.create_string_buffer(8192)  # The largest MPI_MAX_LIBRARY_VERSION_STRING of any MPI.
    ctypes.CDLL(library[0]).MPI_Get_library_version(name, ctypes.byref(ctypes.c_int()))
    return name.value.decode(errors="replace")


def main() -> None:
    """Import both and report on each."""
    began = time.monotonic()
    import tensorflow as tf

    # Keras is loaded here: TensorFlow imports it on first use.
    report(tensorflow=tf.__version__, keras=tf.keras.__version__, gpus=len(tf.config.list_physical_devices("GPU")),
           seconds=time.monotonic() - began)
    import horovod
    import horovod.tensorflow as hvd
    from horovod.runner.common.util import secret

    import horovod_keras3  # noqa: F401 - to see that it loads.

    report(horovod=horovod.__version__, mpi=hvd.mpi_built(), gloo=hvd.gloo_built(), nccl=bool(hvd.nccl_built()),
           safe=hasattr(secret, "launch_key"), library=mpi_library())


if __name__ == "__main__":
    main()
