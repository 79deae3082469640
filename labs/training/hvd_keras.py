"""Horovod's Keras layer for the Keras that is installed: `from labs.training import hvd_keras as hvd`.

Horovod's own layer is written for Keras 2. On Keras 3 its optimizer trains and never exchanges a gradient, without an
error; `horovod_keras3` replaces it there.
"""

from __future__ import annotations

from labs.training.keras_internals import GENERATION

if GENERATION >= 3:
    from labs.training.horovod_keras3 import *  # noqa: F403
else:
    from horovod.tensorflow.keras import *  # noqa: F403
