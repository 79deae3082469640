"""Two workers, one step: mpirun starts this at the end of `make env` and `make horovod`.

Build flags promise; this shows. Two models that start different become one by a broadcast, see different
data, and must still be one after a step, though not the one they were: that takes averaged gradients.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import horovod
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from horovod.tensorflow.keras import DistributedOptimizer

from labs.run.errors import PROOF_PREFIX


def weights_of_all(model: tf.keras.Model) -> list[np.ndarray]:
    """Return the weights of each worker's model as one vector."""
    return hvd.allgather_object(np.concatenate([weight.ravel() for weight in model.get_weights()]))


def step() -> str | None:
    """Train one step on this worker's own data and return what is wrong, or None."""
    tf.keras.utils.set_random_seed(hvd.rank())
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(1)])
    model.build((None, 4))
    drawn = weights_of_all(model)
    hvd.broadcast_variables(model.variables, root_rank=0)
    sent = weights_of_all(model)
    model.compile(DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss="mse")
    x = np.random.normal(size=(32, 4)).astype("float32")
    model.fit(x, x.sum(axis=1, keepdims=True), batch_size=32, epochs=1, verbose=0)
    stepped = weights_of_all(model)

    if hvd.size() != 2:
        return f"{hvd.size()} worker of 2 is there; was Horovod built with this mpirun's MPI?"
    if np.array_equal(drawn[0], drawn[1]):
        return "the workers started with the same weights, which shows nothing"
    if not np.array_equal(sent[0], sent[1]):
        return "the broadcast left the workers' weights different"
    if np.array_equal(sent[0], stepped[0]):
        return "the step changed no weight"
    if not np.array_equal(stepped[0], stepped[1]):
        return "after the step the workers' weights differ: the gradients were not averaged"
    return None


def main() -> int:
    """Print the verdict on one line; the exit status is 0 if it is good."""
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    wrong = step()
    if hvd.rank() == 0:
        where = f" on {len(gpus)} GPU{'s' * (len(gpus) > 1)}" if gpus else ""
        mpi = os.environ.get("LABS_MPI", "MPI")
        made_of = f"{mpi}, TensorFlow {tf.__version__}, Horovod {horovod.__version__}"
        print(f"{PROOF_PREFIX}{wrong or f'2 workers took a step{where}, weights equal ({made_of})'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
