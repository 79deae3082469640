"""Access to Keras' private attributes, all in one module: a new Keras version changes only this file.
tests/training/test_keras_internals.py checks that no other module uses a private attribute of Keras.

Each function is named after its effect. Its docstring says why Keras has no public way to achieve it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port


class TrainFunction:
    """A model's train function; the number of steps per call can change between calls.

    Keras' own takes `steps_per_execution` steps: a constant of its graph, and of the loop in `Model.fit` that calls it.
    This one is traced once. `fit` counts each call as one step, so a callback has to end the epoch.

    Args:
        model: Compiled and built.
    """

    def __init__(self, model: tf.keras.Model):
        self.steps = 1
        self.taken = 0
        step = tf.function(model.train_step, autograph=False, reduce_retracing=True)

        @tf.function(autograph=False, reduce_retracing=True)
        def several(batches, steps):
            # The loop needs initial logs. A step before the loop would return them, but it would double the graph: the
            # first epoch of ResNet50 took 10 s longer, and 0.4 GB more memory.
            logs = step.get_concrete_function(batches.element_spec).structured_outputs
            _, logs = tf.while_loop(
                lambda taken, _: taken < steps,
                lambda taken, _: (taken + 1, step(next(batches))),
                [tf.constant(0), tf.nest.map_structure(lambda log: tf.zeros(log.shape, log.dtype), logs)],
            )
            return logs

        self._several = several

    def __call__(self, batches: Iterator) -> dict[str, tf.Tensor]:
        logs = self._several(batches, tf.constant(self.steps))
        self.taken += self.steps
        return logs


def compile_for_steps(model: tf.keras.Model, optimizer: tf.keras.optimizers.Optimizer, loss: Callable,
                      metrics: Sequence[str | Callable]) -> None:
    """Compile a model so that its training step is traced once, and the steps per call can change.

    Keras creates loss and metrics from the first batch, and runs the model once more to do so.

    Args:
        model: Built.
        loss: A function of labels and outputs.
        metrics: Metrics that respect the sample weights.
    """
    # "auto" would compile with XLA where there is a GPU, but XLA does not know Horovod's operations.
    model.compile(optimizer, loss, weighted_metrics=list(metrics), jit_compile=False)
    labels, outputs = tf.zeros([1]), tf.zeros([1, *model.output_shape[1:]])
    model._compile_loss.build(labels, outputs)
    model._compile_metrics.build(labels, outputs)
    model.train_function = TrainFunction(model)


def set_steps_per_execution(model: tf.keras.Model, steps: int) -> None:
    """Set how many steps a model takes per call of its train function, at most those left in the epoch.

    Keras reads its own setting, `Model.steps_per_execution`, only when `fit` begins and when the function is traced.
    """
    model.train_function.steps = steps


def start_counting(model: tf.keras.Model) -> None:
    """Set the number of steps taken to 0."""
    model.train_function.taken = 0


def steps_taken(model: tf.keras.Model) -> int:
    """Return how many steps the model has taken since `start_counting`.

    `optimizer.iterations` counts updates of the weights; with gradient accumulation there are fewer of them.
    """
    return model.train_function.taken


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


def all_layers(model: tf.keras.Model) -> list[tf.keras.layers.Layer]:
    """Return a model's layers and the layers nested inside them, which `Model.layers` leaves out."""
    return list(model._flatten_layers(include_self=False))


def random_state(model: tf.keras.Model) -> list[tf.Variable]:
    """Return the state of all random generators, such as dropout's; `Model.weights` leaves it out."""
    return [tf_variable(generator.state) for generator in _generators(model)]


def reseed_dropout(model: tf.keras.Model, seed_of: Callable[[int], int]) -> None:
    """Set the seeds of all layers that draw random numbers; a layer's `seed` is read only when it is built.

    Args:
        model: Built.
        seed_of: Returns the seed of the layer with this index among them.
    """
    for index, generator in enumerate(_generators(model)):
        generator.state.assign([seed_of(index), 0])


def _generators(model: tf.keras.Model) -> Iterator[Any]:
    for layer in all_layers(model):
        yield from layer._seed_generators


def tf_variable(variable: Any) -> tf.Variable:
    """Return the TensorFlow variable behind a Keras variable, for Horovod and for a view of its memory."""
    return variable.value


def state(model: tf.keras.Model) -> list[tf.Variable]:
    """Return the TensorFlow variables of a model's weights and of its optimizer's state, in a fixed order."""
    return [tf_variable(variable) for variable in [*model.weights, *model.optimizer.variables]]


def velocity(optimizer: tf.keras.optimizers.SGD, variable: tf.Variable) -> tf.Variable | None:
    """Return the momentum that SGD keeps for a variable, or None without momentum; found by a private index."""
    return tf_variable(optimizer.momentums[optimizer._get_variable_index(variable)]) if optimizer.momentum else None


def moments(optimizer: tf.keras.optimizers.Adam, variable: tf.Variable) -> tuple[tf.Variable, tf.Variable]:
    """Return the first and second moment that Adam keeps for a variable; Keras keeps both in private lists."""
    index = optimizer._get_variable_index(variable)
    return tf_variable(optimizer._momentums[index]), tf_variable(optimizer._velocities[index])


def onednn_enabled() -> bool:
    """Return whether TensorFlow computes with oneDNN: its variable is only a request, and no API reports it."""
    return _pywrap_util_port.IsMklEnabled()
