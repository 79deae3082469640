"""Private Keras, and what differs between Keras 3 and Keras 2: one place, so that a new Keras changes one module.

Keras 3 is in `keras3_internals`, Keras 2 (TensorFlow 2.15, or `tf_keras`) in `keras2_internals`. Both define the same
functions. tests/training/test_keras_internals.py checks that no other module uses a private attribute of Keras.
"""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port

VERSION = metadata.version(tf.keras.Model.__module__.partition(".")[0])
"""Of the package behind `tf.keras`: `keras`, or `tf_keras` with TF_USE_LEGACY_KERAS=1."""
GENERATION = int(VERSION.partition(".")[0])
"""2 or 3: checkpoints and the initial weights of the two differ."""

if TYPE_CHECKING or GENERATION >= 3:
    from labs.training.keras3_internals import (
        all_layers,
        compile_for_steps,
        learning_rate_now,
        make_dropout_resumable,
        moments,
        name_of,
        random_state,
        reseed_dropout,
        set_steps_per_execution,
        start_counting,
        steps_taken,
        take_steps,
        tf_variable,
        velocity,
    )
else:
    from labs.training.keras2_internals import (
        all_layers,
        compile_for_steps,
        learning_rate_now,
        make_dropout_resumable,
        moments,
        name_of,
        random_state,
        reseed_dropout,
        set_steps_per_execution,
        start_counting,
        steps_taken,
        take_steps,
        tf_variable,
        velocity,
    )

__all__ = [
    "GENERATION",
    "VERSION",
    "all_layers",
    "compile_for_steps",
    "learning_rate_now",
    "make_dropout_resumable",
    "moments",
    "name_of",
    "onednn_enabled",
    "random_state",
    "reseed_dropout",
    "set_steps_per_execution",
    "start_counting",
    "steps_taken",
    "take_steps",
    "tf_variable",
    "velocity",
]


def onednn_enabled() -> bool:
    """Return whether TensorFlow computes with oneDNN: its variable is only a request, and no API reports it."""
    return _pywrap_util_port.IsMklEnabled()
