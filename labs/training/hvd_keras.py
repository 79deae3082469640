"""Horovod's Keras layer for the Keras that is installed: `from labs.training import hvd_keras as hvd`.

Horovod's own layer is written for Keras 2. On Keras 3 its optimizer trains without an error but never exchanges a
gradient, so `horovod_keras3` replaces it there.
"""

from __future__ import annotations

import sys

import tensorflow as tf

from labs.run.errors import LabError
from labs.training.keras_internals import GENERATION


def refuse_horovods_own_layer() -> None:
    """Make Horovod's own Keras layer raise when it wraps an optimizer."""
    # `horovod.keras`, `horovod.tensorflow.keras` and `horovod.tensorflow` all create their optimizers there.
    import horovod._keras as horovods_own

    def refuse(*args, **kwargs):
        raise LabError("Horovod's own DistributedOptimizer never exchanges a gradient on Keras 3; "
                       "use labs.training.hvd_keras")

    horovods_own.create_distributed_optimizer = refuse


if GENERATION >= 3:
    from labs.training.horovod_keras3 import *  # noqa: F403

    refuse_horovods_own_layer()
else:
    # With TF_USE_LEGACY_KERAS=1 tf.keras is `tf_keras`, but Horovod imports `keras`, and its callbacks would raise.
    sys.modules["keras"] = sys.modules[tf.keras.Model.__module__.partition(".")[0]]
    from horovod.tensorflow.keras import *  # noqa: F403
