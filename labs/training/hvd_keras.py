"""Horovod's Keras layer for the installed Keras: Horovod's own for Keras 2, `horovod_keras3` for Keras 3.

from labs.training import hvd_keras as hvd
"""

from __future__ import annotations

import horovod._keras
import tensorflow as tf

from labs.run.errors import LabError


def refuse_horovods_own_layer() -> None:
    """Let Horovod's own Keras layer raise where it makes an optimizer: on Keras 3 that trains without exchanging."""
    def refuse(*args, **kwargs):
        raise LabError("Horovod's own DistributedOptimizer never exchanges a gradient on Keras 3; "
                       "use labs.training.hvd_keras")

    horovod._keras.create_distributed_optimizer = refuse


if int(tf.keras.__version__.split(".")[0]) >= 3:
    refuse_horovods_own_layer()
    from labs.training.horovod_keras3 import *  # noqa: F403
else:
    from horovod.tensorflow.keras import *  # noqa: F403
