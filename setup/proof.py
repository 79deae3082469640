"""Two workers, one step: `make env` and `make horovod` end with this proof that Horovod averages gradients.

Two models start with different weights, get equal ones by a broadcast, and train one step on different data. If
their weights have changed and are still equal, the gradients were averaged.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import horovod
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from horovod_keras3 import DistributedOptimizer
from labs.run.errors import PROOF_PREFIX


def weights_of_all(model: tf.keras.Model) -> list[np.ndarray]:
    """Return each worker's weights as one vector."""
    return hvd.allgather_object(np.concatenate([weight.ravel() for weight in model.get_weights()]))


def step() -> str | None:
    """Train one step on this worker's own data; return what is wrong, or None."""
    tf.keras.utils.set_random_seed(hvd.rank())
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(1)])
    model.build((None, 4))
    initial = weights_of_all(model)
    model.set_weights(hvd.broadcast_object(model.get_weights(), root_rank=0))
    broadcast = weights_of_all(model)
    model.compile(DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss="mse")
    x = np.random.normal(size=(32, 4)).astype("float32")
    model.fit(x, x.sum(axis=1, keepdims=True), batch_size=32, epochs=1, verbose=0)
    stepped = weights_of_all(model)

    if hvd.size() != 2:
        return f"{hvd.size()} worker of 2 is there; was Horovod built with the MPI of this mpirun?"
    if np.array_equal(initial[0], initial[1]):
        return "the workers started with the same weights, which shows nothing"
    if not np.array_equal(broadcast[0], broadcast[1]):
        return "the broadcast left the workers' weights different"
    if np.array_equal(broadcast[0], stepped[0]):
        return "the step changed no weight"
    if not np.array_equal(stepped[0], stepped[1]):
        return "after the step the workers' weights differ: the gradients were not averaged"
    return None


def main() -> int:
    """Print the verdict in one line and return the exit status."""
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    wrong = step()
    if hvd.rank() == 0:
        where = f" on {len(gpus)} GPU{'s' * (len(gpus) > 1)}" if gpus else ""
        mpi = os.environ.get("LABS_MPI", "MPI")
        versions = f"{mpi}, TensorFlow {tf.__version__}, Horovod {horovod.__version__}"
        print(f"{PROOF_PREFIX}{wrong or f'2 workers took a step{where}, weights equal ({versions})'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
