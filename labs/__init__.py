"""Lab kit for distributed training with TensorFlow, Keras and Horovod."""

import os

__version__ = "0.1.0"

# Read when TensorFlow and MPI load, so set before either; a student's own choice stays.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Horovod: a rank that waits for the others gives its core to their training threads instead of spinning on it.
os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
