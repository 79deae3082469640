"""Horovod's Keras layer for the Keras that is installed: `from labs.training import hvd_keras as hvd`.

Horovod's own layer is written for Keras 2. On Keras 3 its optimizer trains without an error but never exchanges a
gradient, so the package `horovod_keras3` replaces it there, and `import labs` refuses Horovod's own.
"""

from __future__ import annotations

import sys

import tensorflow as tf

from labs.run import environment
from labs.run.errors import LabError
from labs.training.keras_internals import GENERATION

if GENERATION >= 3:
    try:
        from horovod_keras3 import *  # noqa: F403
        from horovod_keras3 import DistributedOptimizer  # noqa: F401 - fails if this is only the clone's folder.
    except ImportError:  # An environment that an older kit made.
        raise LabError(f"horovod_keras3 is not installed for {sys.executable}; "
                       f"{environment.install('horovod_keras3')}") from None
else:
    # With TF_USE_LEGACY_KERAS=1 tf.keras is `tf_keras`, but Horovod imports `keras`, and its callbacks would raise.
    sys.modules["keras"] = sys.modules[tf.keras.Model.__module__.partition(".")[0]]
    import horovod.tensorflow.keras
    from horovod.tensorflow.keras import *  # noqa: F403

    # Lab 2 imports its layer as students do. On Keras 2 Horovod's own has that name's functions.
    sys.modules["horovod_keras3"] = horovod.tensorflow.keras
