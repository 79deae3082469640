"""What Keras 2, of TensorFlow 2.15 or of `tf_keras`, does differently: for `keras_internals`, whose functions these
replace and whose docstrings hold here too.
"""

from __future__ import annotations

import functools
import importlib
import random
import sys
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

__all__ = ["_generators", "compile_for_steps", "learning_rate_now", "make_dropout_resumable", "moments", "name_of",
           "random_state", "reseed_dropout", "set_steps_per_execution", "start_counting", "steps_taken", "tf_variable",
           "velocity"]


def compile_for_steps(model, optimizer, loss, metrics):
    """Keras creates loss and metrics during the first step. It therefore traces the step twice, and each time once more
    for the loop around it. Keras has no public way to create loss and metrics earlier, or to trace the step as a
    separate function. Doing both halves the wait for the first step.
    """
    # With one step per call Keras makes another train function, which takes one step even if the number is raised.
    model.compile(optimizer, loss, weighted_metrics=list(metrics), jit_compile=False, steps_per_execution=2)
    outputs = tf.zeros([1, *model.output_shape[1:]])
    model.compiled_loss.build(outputs)
    model.compiled_metrics.build(outputs, tf.zeros([1]))
    model.train_step = tf.function(functools.partial(type(model).train_step, model), autograph=False)
    model.make_train_function()


def set_steps_per_execution(model, steps):
    """Change the number in place, between two calls; Keras' documented way, `compile`, builds the functions again."""
    model.steps_per_execution = steps


def start_counting(model):
    """Do nothing: Keras 2 sets the number of steps taken to 0 when `Model.fit` begins."""


def steps_taken(model):
    """Keras has no public counter of steps: callbacks have to count batches themselves."""
    return int(model._train_counter)


def learning_rate_now(optimizer):
    """With a schedule, the public `optimizer.learning_rate` is that of the last step."""
    value = optimizer._learning_rate
    return float(value(optimizer.iterations) if callable(value) else value)


def make_dropout_resumable():
    """Keras 2 draws from TensorFlow's global generator unless this experimental switch is on."""
    tf.keras.backend.experimental.enable_tf_random_generator()


def random_state(model):
    """Keras does not list these variables among those of the model."""
    return [generator.state for generator in _generators(model)]


def reseed_dropout(model, seed_of):
    """A layer's `seed` is read only when it is built."""
    for index, generator in enumerate(_generators(model)):
        generator.reset_from_seed(seed_of(index))


def _generators(model):
    for layer in model._flatten_layers(include_self=False):
        generator = getattr(getattr(layer, "_random_generator", None), "_generator", None)
        if generator is not None:
            yield generator


def tf_variable(variable):
    """In Keras 2 a variable is a TensorFlow variable."""
    return variable


def name_of(variable):
    """In Keras 2 `name` is the full name."""
    return variable.name


def velocity(optimizer, variable):
    """Keras has no public way to find it: its index in `momentums` is private."""
    return optimizer.momentums[_index(optimizer, variable)]


def moments(optimizer, variable):
    """Keras has no public way to get them: both are in private lists."""
    index = _index(optimizer, variable)
    return optimizer._momentums[index], optimizer._velocities[index]


def _index(optimizer, variable):
    return optimizer._index_dict[optimizer._var_key(variable)]


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
