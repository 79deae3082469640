"""The refusal of Horovod's own Keras layer, which exchanges no gradient on Keras 3."""

from __future__ import annotations

import importlib

import horovod.tensorflow
import pytest
import tensorflow as tf

from labs.run.errors import LabError


def test_horovods_own_layer_is_refused_by_name():
    for own in ("horovod.keras", "horovod.tensorflow.keras", "horovod.tensorflow.keras.callbacks"):
        with pytest.raises(LabError, match="never exchanges a gradient on Keras 3; use `import horovod_keras3 as hvd`"):
            importlib.import_module(own)
    with pytest.raises(LabError, match="never exchanges a gradient"):
        horovod.tensorflow.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
