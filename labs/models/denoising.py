"""Image denoiser of any depth and width: DnCNN (Zhang et al. 2017, arXiv 1608.03981) without batch norm."""

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

layers = tf.keras.layers
PATTERNS = 64  # Of the noise.


def denoiser(image_size: int, depth: int, width: int, recompute: bool = False) -> tf.keras.Model:
    """Return a network that predicts the noise of an image and subtracts it.

    Input and output float32 [batch, image_size, image_size, 3]. With depth 17 and width 64 it is DnCNN for colour
    images, with each batch norm folded into the convolution before it. Untrained, it is the identity. To recompute is
    to keep about sqrt(depth) activations for the backward pass, and to compute the others again (gradient
    checkpointing).
    """
    noisy = layers.Input((image_size, image_size, 3))
    x = _convolution(width)(noisy)
    hidden = [_convolution(width) for _ in range(depth - 2)]
    length = math.ceil(math.sqrt(depth - 2)) if recompute else 1
    for start in range(0, len(hidden), length):
        segment = hidden[start:start + length]
        x = Recomputed(segment)(x) if recompute else segment[0](x)
    noise = layers.Conv2D(3, 3, padding="same", kernel_initializer="zeros", dtype="float32")(x)
    return tf.keras.Model(noisy, layers.Subtract(dtype="float32")([noisy, noise]), name="denoiser")


def _convolution(width: int) -> tf.keras.layers.Layer:
    return layers.Conv2D(width, 3, padding="same", activation="relu", kernel_initializer="he_normal")


class Recomputed(tf.keras.layers.Layer):
    """Consecutive layers whose activations are recomputed in the backward pass (Chen et al. 2016, arXiv 1604.06174).

    `tf.recompute_grad` alone saves no memory here. TensorFlow computes the gradients of the weights, which need the
    activations, after all gradients that are passed on, and keeps everything until then. So a segment passes its
    gradient on only after the gradients of its weights are computed.
    """

    def __init__(self, segment: Sequence[tf.keras.layers.Layer], **rest):
        super().__init__(**rest)
        self.segment = list(segment)

    def build(self, shape):
        for layer in self.segment:
            layer.build(shape)
            shape = layer.compute_output_shape(shape)
        super().build(shape)

    def call(self, x):
        return _recomputed(self._forward)(x)

    def _forward(self, x):
        for layer in self.segment:
            x = layer(x)
        return x


def _recomputed(forward: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
    @tf.custom_gradient
    def function(x):
        def gradient(upstream, variables):
            with tf.control_dependencies([upstream]):  # Not earlier than needed.
                again = tf.identity(x)
            with tf.GradientTape() as tape:
                tape.watch(again)
                y = forward(again)
            of_x, of_variables = tape.gradient(y, (again, variables), upstream)
            with tf.control_dependencies(of_variables):  # This segment's activations are free now.
                return tf.identity(of_x), of_variables

        return forward(x), gradient

    return function


class Noise(tf.keras.layers.Layer):
    """Adds Gaussian noise that depends on the image: the same in every epoch and for any number of workers.

    Input and output float32 [batch, height, width, channels] in 0 .. 1; `level` is on a scale where white is 255.
    """

    def __init__(self, level: float, seed: int, **rest):
        super().__init__(dtype="float32", **rest)
        self.level, self.seed = level, seed

    def build(self, shape):
        self.patterns = tf.random.stateless_normal([PATTERNS, *shape[1:]], [self.seed, 0], stddev=self.level / 255)
        super().build(shape)

    def call(self, images):
        sums = tf.cast(tf.round(255 * tf.reduce_sum(images, axis=[1, 2, 3])), tf.int32)
        return images + tf.gather(self.patterns, sums % PATTERNS)


def denoising_error(network: tf.keras.Model, level: float, seed: int) -> tf.keras.Model:
    """Return a model that adds noise to images, denoises them with the network, and outputs the error.

    Input uint8 [batch, height, width, channels], output float32 [batch, 1]: the mean squared error of each image, on a
    scale where white is 1. The output is also the loss ("mae" against labels of 0).
    """
    images = layers.Input(network.input_shape[1:], dtype="uint8")
    clean = layers.Rescaling(1 / 255, dtype="float32")(images)
    cleaned = network(Noise(level, seed)(clean))
    return tf.keras.Model(images, SquaredError()([cleaned, clean]), name="denoising_error")


class SquaredError(tf.keras.layers.Layer):
    """Mean squared difference of two images: two float32 [batch, height, width, channels] -> float32 [batch, 1]."""

    def __init__(self, **rest):
        super().__init__(dtype="float32", **rest)

    def call(self, pair):
        return tf.reduce_mean(tf.math.squared_difference(*pair), axis=[1, 2, 3])[:, None]


def psnr(_, error: tf.Tensor) -> tf.Tensor:
    """Return each image's peak signal-to-noise ratio in dB, 10 log10(1 / error): a metric for `denoising_error`."""
    return -10 / math.log(10) * tf.math.log(tf.maximum(error[:, 0], 1e-10))
