"""Lab kit for distributed training with TensorFlow, Keras and Horovod.

Importing it sets four environment variables, those of SETTINGS, unless they are set: TensorFlow and MPI read them when
they load, so they cannot be set later.
"""

import os

from labs.run import lazy

__version__ = "0.1.0"

SETTINGS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # Convolutions are twice as fast; TensorFlow does so by itself where the processor has instructions for neural
    # networks (VNNI).
    "TF_ENABLE_ONEDNN_OPTS": "1",
    # Horovod: a rank that waits for the others gives its core to their training threads instead of spinning on it.
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # The C library asks for pages of 2 MiB: weights and gradients are passed over many times in each step.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""Read when TensorFlow and MPI load; GLIBC_TUNABLES when a process starts, so it holds for the workers that a command
starts. A student's own value stays."""
for _name, _value in SETTINGS.items():
    os.environ.setdefault(_name, _value)

CYCLE_MS = 0.1
"""Horovod: how long it collects tensors before it exchanges them, in milliseconds. Its own 1 is longer than a step of a
small model. Over MPI, where waiting workers spin anyway, the short one costs nothing; a Gloo worker, 40 % of a core."""
FUSION_MB = 1
"""Horovod: MiB of tensors that it collects into one message; what is larger is sent alone, from where it lies. With its
own 128 it is copied into a buffer with the others and back, by cores that have a model to train."""
PLAIN = {"HOROVOD_CYCLE_TIME": r"\d+(\.\d*)?", "HOROVOD_FUSION_THRESHOLD": r"\d+"}
"""How the numbers of these variables must be written: of others Horovod would read the beginning, or 0."""

FOR_MEMORY = {"TF_ENABLE_ONEDNN_OPTS": "0", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}
"""For a study of memory: beside the tensors oneDNN keeps rearranged copies, which no GPU has; and what lies in huge
pages is counted by whole pages."""

# All that a lab needs besides the packages: `from labs import Lab, Options, datasets, fields, main, models, training`.
__getattr__, __dir__, __all__ = lazy.attach(__name__, {
    "run": ["Lab", "LabError", "Options", "Range", "Sweep", "divide", "fields", "main", "naming"],
})
