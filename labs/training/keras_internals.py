"""Access to Keras' private attributes, all in one module, and optimizers that update a weight in one operation."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port


class TrainFunction:
    """The train function of a compiled and built model; its `steps` per call can change between calls.

    Keras' own takes `steps_per_execution` steps: a constant of its graph, and of the loop in `Model.fit` that calls it.
    This one is traced once. `fit` counts each call as one step, so a callback has to end the epoch.
    """

    def __init__(self, model: tf.keras.Model):
        self.steps = 1
        self.taken = 0
        """The steps of all calls; `optimizer.iterations` counts updates, of which micro-batches make fewer."""
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
    """Compile a built model so that its training step is traced once, and the steps per call can change."""
    # "auto" would compile with XLA where there is a GPU, but XLA does not know Horovod's operations.
    model.compile(optimizer, loss, weighted_metrics=list(metrics), jit_compile=False)
    # Keras would create loss and metrics from the first batch, and run the model once more to do so.
    labels, outputs = tf.zeros([1]), tf.zeros([1, *model.output_shape[1:]])
    model._compile_loss.build(labels, outputs)
    model._compile_metrics.build(labels, outputs)
    model.train_function = TrainFunction(model)


def take_steps(model: tf.keras.Model, batches: Iterator, steps: int) -> float:
    """Take training steps in one call, and return the loss, which on a GPU waits until they are done.

    The model is compiled by `compile_for_steps`; the batches are images, labels and weights.
    """
    model.train_function.steps = steps
    return float(model.train_function(batches)["loss"])


def all_layers(model: tf.keras.Model) -> list[tf.keras.layers.Layer]:
    """Return a model's layers and the layers nested inside them, which `Model.layers` leaves out."""
    return list(model._flatten_layers(include_self=False))


def random_state(model: tf.keras.Model) -> list[tf.Variable]:
    """Return the state of all random generators, such as dropout's; `Model.weights` leaves it out."""
    return [tf_variable(generator.state) for layer in all_layers(model) for generator in layer._seed_generators]


def seed_dropout(model: tf.keras.Model, *seeds: int) -> None:
    """Seed each layer that draws random numbers, from these numbers: a layer reads its own `seed` only when built."""
    for index, state in enumerate(random_state(model)):
        state.assign([int(np.random.SeedSequence([*seeds, index]).generate_state(1)[0]), 0])


def tf_variable(variable: Any) -> tf.Variable:
    """Return the TensorFlow variable behind a Keras variable, for Horovod and for a view of its memory."""
    return variable.value


def state(model: tf.keras.Model) -> list[tf.Variable]:
    """Return the TensorFlow variables of a model's weights and of its optimizer's state, in a fixed order."""
    return [tf_variable(variable) for variable in [*model.weights, *model.optimizer.variables]]


def as_array(variable: tf.Variable) -> np.ndarray:
    """Return a variable's value, only to be read: in this machine's memory it is not copied."""
    return np.asarray(variable.value())


def onednn_enabled() -> bool:
    """Return whether TensorFlow computes with oneDNN: its variable is only a request, and no API reports it."""
    return _pywrap_util_port.IsMklEnabled()


class _AfterAllGradients(tf.keras.optimizers.Optimizer):
    """An optimizer that updates no variable before all gradients are available: with Horovod, the averaged ones.

    TensorFlow copies a variable that is updated while an operation still reads it. The gradient of a layer's inputs
    reads the layer's weights, and Keras updates each variable as soon as its own gradient is available.
    """

    def apply(self, grads, trainable_variables=None):
        if not self.built:
            with tf.init_scope():  # Its variables are created outside the graph, so they cannot wait for a gradient.
                self.build(trainable_variables)
        with after_all(grads):
            super().apply(grads, trainable_variables)


class SGD(_AfterAllGradients, tf.keras.optimizers.SGD):
    """Keras' SGD with a fused update: one pass over a variable and its momentum.

    Keras composes the update from six operations (Adam: twelve), each a pass over memory. TensorFlow has each update as
    one operation: 10 % more images/s for the MNIST CNN at batch 32, 20 % with 6 M parameters, on two workers
    (docs/speed.md). The formulas are Keras'; the last digits may differ. What the operations do not support is left
    to Keras.
    """

    def update_step(self, gradient, variable, learning_rate):
        if isinstance(gradient, tf.IndexedSlices) or not self.momentum:
            super().update_step(gradient, variable, learning_rate)
            return
        velocity = tf_variable(self.momentums[self._get_variable_index(variable)])
        learning_rate, momentum = (tf.cast(value, variable.dtype) for value in (learning_rate, self.momentum))
        tf.raw_ops.ResourceApplyKerasMomentum(var=variable.handle, accum=velocity.handle, lr=learning_rate,
                                              grad=gradient, momentum=momentum, use_nesterov=self.nesterov)


class Adam(_AfterAllGradients, tf.keras.optimizers.Adam):
    """Keras' Adam with a fused update: one pass over a variable and its moments."""

    def update_step(self, gradient, variable, learning_rate):
        if isinstance(gradient, tf.IndexedSlices) or self.amsgrad:
            super().update_step(gradient, variable, learning_rate)
            return
        learning_rate, beta_1, beta_2, epsilon, step = (
            tf.cast(value, variable.dtype)
            for value in (learning_rate, self.beta_1, self.beta_2, self.epsilon, self.iterations + 1)
        )
        index = self._get_variable_index(variable)
        first, second = tf_variable(self._momentums[index]), tf_variable(self._velocities[index])
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle, m=first.handle, v=second.handle, beta1_power=beta_1**step, beta2_power=beta_2**step,
            lr=learning_rate, beta1=beta_1, beta2=beta_2, epsilon=epsilon, grad=gradient,
        )


def after_all(tensors: Iterable[Any]) -> AbstractContextManager:
    """Return a context whose operations run after all tensors are computed; of no effect in eager mode."""
    # A single operation waits for all. When each of hundreds of updates did, the first epoch of ResNet50 took 12 s
    # longer, and 0.6 GB more memory.
    computed = tf.group(*(tensor for tensor in tensors if tensor is not None))
    return tf.control_dependencies([computed] if computed is not None else [])


FUSED: dict[type, Any] = {tf.keras.optimizers.SGD: SGD, tf.keras.optimizers.Adam: Adam}


def fused(optimizer: tf.keras.optimizers.Optimizer) -> tf.keras.optimizers.Optimizer:
    """Return a new optimizer with the same settings and fused updates; return any but SGD and Adam unchanged."""
    kind = FUSED.get(type(optimizer))
    return kind.from_config(optimizer.get_config()) if kind else optimizer
