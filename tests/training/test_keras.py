"""Where the kit bends Keras: fused updates, many steps per call, batch norm."""

import dataclasses
from collections.abc import Callable

import horovod.tensorflow as horovod
import numpy as np
import pytest
import tensorflow as tf

import horovod_keras3 as hvd
from labs.datasets.splits import Subset
from labs.run.fields import BatchSize, Options, Seed
from labs.training import hvd_ops, workers
from labs.training.keras_internals import FUSED, fused
from labs.training.loop import fit
from labs.training.schedule import Warmup
from labs.training.trained import recompute_statistics

layers = tf.keras.layers


KINDS: dict[str, Callable[[], tf.keras.optimizers.Optimizer]] = {
    "momentum, schedule": lambda: tf.keras.optimizers.SGD(Warmup(0.01, 0.1, warmup_steps=4), 0.9),
    "nesterov, decay": lambda: tf.keras.optimizers.SGD(0.1, 0.9, nesterov=True, weight_decay=0.01, global_clipnorm=0.5),
    "adam, schedule": lambda: tf.keras.optimizers.Adam(Warmup(0.001, 0.01, warmup_steps=4), beta_2=0.99, epsilon=0.1),
    "amsgrad": lambda: tf.keras.optimizers.Adam(0.01, amsgrad=True),
}


def trained(optimizer: tf.keras.optimizers.Optimizer) -> list[np.ndarray]:
    """Return the weights, the moments and the number of steps after six steps with dense and sparse gradients."""
    tf.keras.utils.set_random_seed(1)
    words = tf.keras.Input([5], dtype=tf.int32)
    hidden = layers.Dense(7, "relu")(layers.Flatten()(layers.Embedding(9, 4)(words)))
    model = tf.keras.Model(words, layers.Dense(3)(hidden))
    model.compile(optimizer, "mse")
    x, y = np.random.default_rng(1).integers(0, 9, [24, 5]), np.random.default_rng(2).normal(size=[24, 3])
    model.fit(x, y, batch_size=4, epochs=1, verbose=0)
    return [variable.numpy() for variable in [*model.variables, *optimizer.variables]]


@pytest.mark.parametrize("kind", KINDS)
def test_the_fused_update_ends_where_keras_does(kind):
    hvd.init()
    optimizer, wrapped = fused(KINDS[kind]()), hvd_ops.distributed_optimizer(KINDS[kind]())
    assert type(optimizer) is type(wrapped) in FUSED.values()
    assert wrapped.get_config() == optimizer.get_config() | {"name": wrapped.name}
    one_pass, keras = trained(optimizer), trained(KINDS[kind]())
    assert len(one_pass) == len(keras)
    for mine, other in zip(one_pass, keras, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)


def test_the_mean_of_integers_has_a_fraction_in_horovods_own_functions_too():
    """As setup/horovod.patch makes it; as released, Horovod gives the mean of 3 and 4 as 3."""
    hvd.init()
    three = tf.constant([3])
    means = [horovod.allreduce(three), horovod.reducescatter(three), *horovod.grouped_allreduce([three]),
             *horovod.grouped_reducescatter([three])]
    assert [(mean.dtype, mean.numpy().tolist()) for mean in means] == [(tf.float64, [3.0])] * 4


@dataclasses.dataclass(frozen=True)
class Config:
    epochs: int = 2
    batch_size: BatchSize = 16
    seed: Seed = 1


def test_recomputed_statistics_are_plain_means_over_the_training_images(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (64, 6, 6, 3), dtype=np.uint8)
    train = Subset(images, images.mean((1, 2, 3)).astype(np.int64) % 2, np.arange(64))
    model = tf.keras.Sequential([
        layers.Input((6, 6, 3), dtype="uint8"), layers.Rescaling(1 / 255), layers.Conv2D(4, 3),
        norm := layers.BatchNormalization(momentum=0.9), layers.Flatten(), layers.Dense(2, activation="softmax"),
    ])
    with workers.start(Config(), Options(results=tmp_path)) as job:
        fit(job, model, tf.keras.optimizers.SGD(0.1), train, batch_size=16, epochs=2)
        right, lagging = model.layers[1](images / 255.0).numpy(), norm.moving_mean.numpy()
        recompute_statistics(job, model, train, 16)
    assert norm.momentum == 0.9
    assert abs(lagging - right.mean((0, 1, 2))).max() > 0.01, "nothing to repair"
    np.testing.assert_allclose(norm.moving_mean, right.mean((0, 1, 2)), atol=1e-5)
    assert 0.9 < np.mean(norm.moving_variance / right.var((0, 1, 2))) < 1.05, "the mean of the batches' variances"
