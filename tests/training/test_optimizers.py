"""Updates in one pass against Keras' own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from labs.training import hvd_ops, keras_internals
from labs.training.optimizers import FUSED, fused
from labs.training.schedule import Warmup

KINDS: dict[str, Callable[[], tf.keras.optimizers.Optimizer]] = {
    "sgd": lambda: tf.keras.optimizers.SGD(0.1),
    "momentum": lambda: tf.keras.optimizers.SGD(0.1, 0.9),
    "nesterov": lambda: tf.keras.optimizers.SGD(0.1, 0.9, nesterov=True),
    "decay": lambda: tf.keras.optimizers.SGD(0.1, 0.9, weight_decay=0.01, global_clipnorm=0.5),
    "schedule": lambda: tf.keras.optimizers.SGD(Warmup(0.01, 0.1, warmup_steps=4), 0.9),
    "adam": lambda: tf.keras.optimizers.Adam(0.01),
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
    wrapped = hvd_ops.distributed_optimizer(make(0.5))
    assert isinstance(wrapped, FUSED[make])
    plain = FUSED[make](0.5, name=wrapped.name).get_config()
    assert wrapped.get_config() == hvd_ops.undistributed(wrapped).get_config() == plain
    assert type(hvd_ops.undistributed(wrapped)) is FUSED[make]


@pytest.mark.skipif(keras_internals.GENERATION < 3, reason="Horovod's layer for Keras 2 collects the gradients itself")
@pytest.mark.parametrize("make", [tf.keras.optimizers.SGD, tf.keras.optimizers.Adam])
def test_no_variable_is_updated_before_all_gradients_are_computed(make):
    """TensorFlow would copy a variable that another gradient still reads."""
    model = tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(4), tf.keras.layers.Dense(2)])
    model.compile(fused(make(0.1, 0.9)), "mse", jit_compile=False)
    step = tf.function(lambda batch: model.train_step(batch), autograph=False)
    graph = step.get_concrete_function((tf.zeros([5, 3]), tf.zeros([5, 2]))).graph
    (joined,) = [each for each in graph.get_operations() if each.type == "IdentityN"]
    gradients = {source.name for source in joined.inputs}
    updates = [each for each in graph.get_operations() if each.type.startswith("ResourceApply")]
    assert len(updates) == len(gradients) == 4
    for update in updates:
        assert gradients <= waits_for(update)


def waits_for(operation: tf.Operation) -> set[str]:
    """Return the names of all tensors that an operation waits for.

    Keras' IdentityN joins the gradients, but TensorFlow may take it apart: an output counts as its own input alone.
    """
    names: set[str] = set()
    todo = before(operation)
    while todo:
        tensor = todo.pop()
        if tensor.name not in names:
            names.add(tensor.name)
            op = tensor.op
            todo += [op.inputs[tensor.value_index]] if op.type == "IdentityN" else before(op)
    return names


def before(operation: tf.Operation) -> list[tf.Tensor]:
    """Return the inputs of an operation, with an output of each operation that must run before it."""
    earlier = [each.outputs[:1] or before(each) for each in operation.control_inputs]
    return [*operation.inputs, *(tensor for tensors in earlier for tensor in tensors)]


def test_what_keras_alone_knows_stays_as_it_is():
    mine = tf.keras.optimizers.RMSprop(0.1)
    assert fused(mine) is mine
