"""An image denoiser whose depth and width are free: DnCNN (Zhang et al. 2017, arXiv 1608.03981) without batch norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

layers = tf.keras.layers
PATTERNS = 64
"""Patterns of noise that the pictures are given."""


def denoiser(image_size: int, depth: int, width: int, channels: int = 3, recompute: bool = False) -> tf.keras.Model:
    """Return a network that finds the noise of a picture and takes it away.

    Input and output float32 [batch, image_size, image_size, channels]. With depth 17, width 64 and one channel it has
    555,137 parameters: those of DnCNN, its batch norms folded into the convolutions before them. It begins as the
    identity.

    Args:
        image_size: Side of a picture in pixels.
        depth: Convolutions, the first and the last among them; at least 3.
        width: Channels between them.
        channels: Of a picture.
        recompute: Keep about sqrt(depth) activations for the backward pass and compute the others again.
    """
    noisy = layers.Input((image_size, image_size, channels))
    x = _convolution(width)(noisy)
    hidden = [_convolution(width) for _ in range(depth - 2)]
    length = math.ceil(math.sqrt(depth - 2)) if recompute else 1
    for start in range(0, len(hidden), length):
        part = hidden[start:start + length]
        x = Recomputed(part)(x) if recompute else part[0](x)
    noise = layers.Conv2D(channels, 3, padding="same", kernel_initializer="zeros", dtype="float32")(x)
    return tf.keras.Model(noisy, layers.Subtract(dtype="float32")([noisy, noise]), name="denoiser")


def identity(image_size: int, channels: int = 3) -> tf.keras.Model:
    """Return a network that does nothing: what a denoiser has to be better than. Input and output as of `denoiser`."""
    noisy = layers.Input((image_size, image_size, channels))
    return tf.keras.Model(noisy, layers.Activation("linear", dtype="float32")(noisy), name="unchanged")


def _convolution(width: int) -> tf.keras.layers.Layer:
    return layers.Conv2D(width, 3, padding="same", activation="relu", kernel_initializer="he_normal")


class Recomputed(tf.keras.layers.Layer):
    """Some layers whose activations are not kept for the backward pass but computed again (Chen et al. 2016).

    `tf.recompute_grad` alone saves nothing here: TensorFlow computes the gradients of the weights, which need the
    activations, after all gradients that are handed on, and holds everything that long. So a part hands its gradient
    on only when those of its own weights are there. Measured: docs/how-we-measure.md.

    Args:
        parts: Layers, called one after the other.
    """

    def __init__(self, parts: Sequence[tf.keras.layers.Layer], **rest):
        super().__init__(**rest)
        self.parts = list(parts)

    def build(self, shape):
        for part in self.parts:
            part.build(shape)
            shape = part.compute_output_shape(shape)
        super().build(shape)

    def call(self, x):
        return _recomputed(self._forward)(x)

    def _forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


def _recomputed(forward: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
    @tf.custom_gradient
    def function(x):
        def gradient(upstream, variables):
            with tf.control_dependencies([upstream]):  # Not before it is needed.
                again = tf.identity(x)
            with tf.GradientTape() as tape:
                tape.watch(again)
                y = forward(again)
            of_x, of_variables = tape.gradient(y, (again, variables), upstream)
            with tf.control_dependencies(of_variables):  # Nothing of this part is needed any more.
                return tf.identity(of_x), of_variables

        return forward(x), gradient

    return function


class Noise(tf.keras.layers.Layer):
    """Adds noise that belongs to the picture: the same one in every epoch and on however many workers.

    Input and output float32 [batch, height, width, channels] in 0 .. 1.

    Args:
        level: Standard deviation, of 255.
        seed: Of the patterns.
    """

    def __init__(self, level: float, seed: int, **rest):
        super().__init__(dtype="float32", **rest)
        self.level, self.seed = level, seed

    def build(self, shape):
        self.patterns = tf.random.stateless_normal([PATTERNS, *shape[1:]], [self.seed, 0], stddev=self.level / 255)
        super().build(shape)

    def call(self, pictures):
        sums = tf.cast(tf.round(255 * tf.reduce_sum(pictures, axis=[1, 2, 3])), tf.int32)
        return pictures + tf.gather(self.patterns, sums % PATTERNS)


def denoising_error(network: tf.keras.Model, level: float, seed: int) -> tf.keras.Model:
    """Return a model that makes pictures noisy, lets the network clean them, and says how far it is from the originals.

    Input uint8 [batch, height, width, channels], output float32 [batch, 1]: the mean squared error of each picture,
    in which white is 1. It is its own loss ("mae" against labels of 0); see `psnr`.

    Args:
        network: From `denoiser`.
        level: Standard deviation of the noise, of 255.
        seed: Of the noise.
    """
    pictures = layers.Input(network.input_shape[1:], dtype="uint8")
    clean = layers.Rescaling(1 / 255, dtype="float32")(pictures)
    cleaned = network(Noise(level, seed)(clean))
    return tf.keras.Model(pictures, SquaredError()([cleaned, clean]), name="judged")


class SquaredError(tf.keras.layers.Layer):
    """The mean squared difference of two pictures: two float32 [batch, height, width, channels] -> [batch, 1]."""

    def __init__(self, **rest):
        super().__init__(dtype="float32", **rest)

    def call(self, pair):
        return tf.reduce_mean(tf.math.squared_difference(*pair), axis=[1, 2, 3])[:, None]


def psnr(_, error: tf.Tensor) -> tf.Tensor:
    """Return the peak signal-to-noise ratio of each picture in dB, 10 log10(1 / error): a metric for `judged`."""
    return -10 / math.log(10) * tf.math.log(tf.maximum(error[:, 0], 1e-10))
