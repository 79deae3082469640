"""Updates in one pass against Keras' own."""

from __future__ import annotations

from collections.abc import Callable

import horovod.tensorflow as horovod
import numpy as np
import pytest
import tensorflow as tf

import horovod_keras3 as hvd
from labs.training import hvd_ops
from labs.training.optimizers import FUSED, fused
from labs.training.schedule import Warmup

KINDS: dict[str, Callable[[], tf.keras.optimizers.Optimizer]] = {
    "sgd": lambda: tf.keras.optimizers.SGD(0.1),
    "momentum, schedule": lambda: tf.keras.optimizers.SGD(Warmup(0.01, 0.1, warmup_steps=4), 0.9),
    "nesterov, decay": lambda: tf.keras.optimizers.SGD(0.1, 0.9, nesterov=True, weight_decay=0.01, global_clipnorm=0.5),
    "adam, schedule": lambda: tf.keras.optimizers.Adam(Warmup(0.001, 0.01, warmup_steps=4), beta_2=0.99, epsilon=0.1),
    "amsgrad": lambda: tf.keras.optimizers.Adam(0.01, amsgrad=True),
}


def trained(optimizer: tf.keras.optimizers.Optimizer) -> list[np.ndarray]:
    """Return the weights, the moments and the number of steps after six steps with dense and sparse gradients."""
    tf.keras.utils.set_random_seed(1)
    words = tf.keras.Input([5], dtype=tf.int32)
    hidden = tf.keras.layers.Dense(7, "relu")(tf.keras.layers.Flatten()(tf.keras.layers.Embedding(9, 4)(words)))
    model = tf.keras.Model(words, tf.keras.layers.Dense(3)(hidden))
    model.compile(optimizer, "mse")
    x, y = np.random.default_rng(1).integers(0, 9, [24, 5]), np.random.default_rng(2).normal(size=[24, 3])
    model.fit(x, y, batch_size=4, epochs=1, verbose=0)
    return [variable.numpy() for variable in [*model.variables, *optimizer.variables]]


@pytest.mark.parametrize("kind", KINDS)
def test_one_pass_ends_where_keras_does(kind):
    optimizer = fused(KINDS[kind]())
    assert type(optimizer) in FUSED.values()
    one_pass, keras = trained(optimizer), trained(KINDS[kind]())
    assert len(one_pass) == len(keras)
    for mine, other in zip(one_pass, keras, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("make", [tf.keras.optimizers.SGD, tf.keras.optimizers.Adam])
def test_workers_take_one_pass(make):
    hvd.init()
    wrapped = hvd_ops.distributed_optimizer(make(0.5))
    assert isinstance(wrapped, FUSED[make])
    plain = FUSED[make](0.5, name=wrapped.name).get_config()
    assert wrapped.get_config() == hvd_ops.undistributed(wrapped).get_config() == plain
    assert type(hvd_ops.undistributed(wrapped)) is FUSED[make]


def test_the_mean_of_integers_has_a_fraction_in_horovods_own_functions_too():
    """As setup/horovod.patch makes it; as released, Horovod gives the mean of 3 and 4 as 3."""
    hvd.init()
    three = tf.constant([3])
    means = [horovod.allreduce(three), horovod.reducescatter(three), *horovod.grouped_allreduce([three]),
             *horovod.grouped_reducescatter([three])]
    assert [(mean.dtype, mean.numpy().tolist()) for mean in means] == [(tf.float64, [3.0])] * 4
    large = horovod.allreduce(tf.constant([100_001]), compression=horovod.Compression.fp16)
    assert large.numpy().tolist() == [100_001], "half precision is for floating-point numbers"
    assert horovod.allreduce(three, op=horovod.Sum).dtype == tf.int32


def test_what_keras_alone_knows_stays_as_it_is():
    mine = tf.keras.optimizers.RMSprop(0.1)
    assert fused(mine) is mine
