"""Keras 2, of TensorFlow 2.15 or of `tf_keras`: private calls, and what Keras 3 does differently.

Use them through `keras_internals`. Each function is named after its effect. Its docstring says why Keras 2 has no
public way to achieve it.
"""

from __future__ import annotations

import functools
import importlib
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import tensorflow as tf


def compile_for_steps(model: tf.keras.Model, optimizer: tf.keras.optimizers.Optimizer, loss: Callable,
                      metrics: Sequence[str | Callable]) -> None:
    """Compile a model so that its training step is traced once, and the steps per call can change.

    Keras creates loss and metrics during the first step. It therefore traces the step twice, and each time once more
    for the loop around it. Keras has no public way to create loss and metrics earlier, or to trace the step as a
    separate function. Doing both halves the wait for the first step.

    Args:
        model: Built.
        optimizer: Built.
        loss: A function of labels and outputs.
        metrics: Metrics that respect the sample weights.
    """
    # With one step per call Keras makes another train function, which takes one step even if the number is raised.
    model.compile(optimizer, loss, weighted_metrics=list(metrics), jit_compile=False, steps_per_execution=2)
    outputs = tf.zeros([1, *model.output_shape[1:]])
    model.compiled_loss.build(outputs)
    model.compiled_metrics.build(outputs, tf.zeros([1]))
    model.train_step = tf.function(functools.partial(type(model).train_step, model), autograph=False)
    model.make_train_function()


def set_steps_per_execution(model: tf.keras.Model, steps: int) -> None:
    """Set how many steps a model takes per call of its train or evaluation function.

    Keras' documented way, `compile`, builds the functions again. This changes the number in place, between two calls.
    """
    model.steps_per_execution = steps


def take_steps(model: tf.keras.Model, batches: Iterator, steps: int) -> float:
    """Take training steps in one call, and return the loss, which on a GPU waits until they are done.

    The public `Model.fit` starts a new pipeline and callbacks each time; `train_on_batch` takes one step and does not
    use the train function of `fit`.

    Args:
        model: Compiled by `compile_for_steps`.
        batches: An iterator over images, labels and weights.
        steps: At least 1.
    """
    set_steps_per_execution(model, steps)
    return float(model.train_function(batches)["loss"])


def start_counting(model: tf.keras.Model) -> None:
    """Do nothing: Keras 2 sets the number of steps taken to 0 when `Model.fit` begins."""


def steps_taken(model: tf.keras.Model) -> int:
    """Return how many steps the last `Model.fit` has taken.

    Keras does not report it: callbacks have to count batches themselves, and `optimizer.iterations` counts updates of
    the weights; with gradient accumulation there are fewer of them.
    """
    return int(model._train_counter)


def learning_rate_now(optimizer: tf.keras.optimizers.Optimizer) -> float:
    """Return the learning rate of the next step.

    With a schedule, the public `optimizer.learning_rate` is that of the last step.
    """
    value = optimizer._learning_rate
    return float(value(optimizer.iterations) if callable(value) else value)


def make_dropout_resumable() -> None:
    """Let layers built from now on draw their random numbers from a variable that can be saved and set again.

    Keras 2 draws them from TensorFlow's global generator unless this experimental switch is on.
    """
    tf.keras.backend.experimental.enable_tf_random_generator()


def _accept_float_bounds() -> None:
    """Let Keras 2 draw seeds up to 1e9, a float, which `randint` has rejected since Python 3.12.

    TensorFlow 2.15 supports no Python after 3.11, but `tf_keras` 2.17, which does, has the same line.
    """
    class Drawing(random.Random):
        def randint(self, a, b):
            return super().randint(int(a), int(b))

    package = tf.keras.Model.__module__.partition(".")[0]
    utils: Any = importlib.import_module(f"{package}.src.utils.tf_utils")
    utils.random = SimpleNamespace(Random=Drawing, seed=random.seed,
                                   randint=lambda a, b: random.randint(int(a), int(b)))


if sys.version_info >= (3, 12):
    _accept_float_bounds()


def random_state(model: tf.keras.Model) -> list[tf.Variable]:
    """Return the random generators' state of all layers that draw random numbers, such as dropout.

    Keras does not list these variables among those of the model.
    """
    return [generator.state for generator in _generators(model)]


def reseed_dropout(model: tf.keras.Model, seed_of: Callable[[int], int]) -> None:
    """Set the seeds of all layers that draw random numbers; a layer's `seed` is read only when it is built.

    Args:
        model: Built after `make_dropout_resumable`.
        seed_of: Returns the seed of the layer with this index among them.
    """
    for index, generator in enumerate(_generators(model)):
        generator.reset_from_seed(seed_of(index))


def _generators(model: tf.keras.Model) -> Iterator[Any]:
    """Yield the random generators of a model's layers."""
    for layer in all_layers(model):
        generator = getattr(getattr(layer, "_random_generator", None), "_generator", None)
        if generator is not None:
            yield generator


def all_layers(model: tf.keras.Model) -> list[tf.keras.layers.Layer]:
    """Return a model's layers and the layers nested inside them, which `Model.layers` leaves out."""
    return list(model._flatten_layers(include_self=False))


def tf_variable(variable: tf.Variable) -> tf.Variable:
    """Return the TensorFlow variable behind a Keras variable: in Keras 2 they are the same."""
    return variable


def name_of(variable: tf.Variable) -> str:
    """Return a variable's full name."""
    return variable.name


def velocity(optimizer: tf.keras.optimizers.SGD, variable: tf.Variable) -> tf.Variable:
    """Return the momentum that SGD keeps for a variable; Keras finds it by a private index."""
    return optimizer.momentums[_index(optimizer, variable)]


def moments(optimizer: tf.keras.optimizers.Adam, variable: tf.Variable) -> tuple[tf.Variable, tf.Variable]:
    """Return the first and second moment that Adam keeps for a variable; Keras keeps both in private lists."""
    index = _index(optimizer, variable)
    return optimizer._momentums[index], optimizer._velocities[index]


def _index(optimizer: tf.keras.optimizers.Optimizer, variable: tf.Variable) -> int:
    return optimizer._index_dict[optimizer._var_key(variable)]
