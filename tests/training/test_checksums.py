"""Checksums of whatever a model holds."""

from __future__ import annotations

import zlib
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from labs.training.agreement import checksums


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "int64", "uint8", "bool"])
@pytest.mark.parametrize("shape", [[], [0], [3, 4]], ids=str)
def test_a_checksum_is_that_of_the_bytes(kind, shape):
    value = tf.cast(np.arange(12)[: int(np.prod(shape))].reshape(shape), tf.as_dtype(kind))
    layer = tf.keras.layers.Layer()
    weight = layer.add_weight(name="x", shape=shape, dtype=kind, trainable=False)
    weight.assign(value)
    model = SimpleNamespace(weights=[weight], optimizer=SimpleNamespace(variables=[]))
    assert list(checksums(model).values()) == [zlib.crc32(value.numpy().tobytes())]
