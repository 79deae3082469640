"""Keras' SGD and Adam with an update that is one operation of TensorFlow, one pass over a variable and its moments.

Keras puts the update together of six operations (SGD) or twelve (Adam), each a pass over memory. The formulas are the
same (those of `tf.keras.optimizers.SGD` and `Adam`; Kingma and Ba 2015, end of section 2), the last digits may differ.
What the operation does not know (sparse gradients, AMSGrad) stays with Keras.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class SGD(tf.keras.optimizers.SGD):
    """Keras' SGD in one pass."""

    def update_step(self, gradient, variable):
        if isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable)
            return
        rate, momentum = (tf.cast(value, variable.dtype) for value in (self.learning_rate, self.momentum))
        velocity = self.momentums[self._index_dict[self._var_key(variable)]]
        tf.raw_ops.ResourceApplyKerasMomentum(var=variable.handle, accum=velocity.handle, lr=rate, grad=gradient,
                                              momentum=momentum, use_nesterov=self.nesterov)


class Adam(tf.keras.optimizers.Adam):
    """Keras' Adam in one pass."""

    def update_step(self, gradient, variable):
        if isinstance(gradient, tf.IndexedSlices) or self.amsgrad:
            super().update_step(gradient, variable)
            return
        rate, beta_1, beta_2, epsilon, step = (
            tf.cast(value, variable.dtype)
            for value in (self.learning_rate, self.beta_1, self.beta_2, self.epsilon, self.iterations + 1)
        )
        place = self._index_dict[self._var_key(variable)]
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle, m=self._momentums[place].handle, v=self._velocities[place].handle,
            beta1_power=beta_1**step, beta2_power=beta_2**step, lr=rate, beta1=beta_1, beta2=beta_2, epsilon=epsilon,
            grad=gradient,
        )


IN_ONE_PASS: dict[type, Any] = {tf.keras.optimizers.SGD: SGD, tf.keras.optimizers.Adam: Adam}


def in_one_pass(optimizer: tf.keras.optimizers.Optimizer) -> tf.keras.optimizers.Optimizer:
    """Return an optimizer of the same settings whose updates are one pass each; any but SGD and Adam as it is.

    Args:
        optimizer: Not built yet, as its variables are not taken over.
    """
    kind = IN_ONE_PASS.get(type(optimizer))
    return kind.from_config(optimizer.get_config()) if kind else optimizer
