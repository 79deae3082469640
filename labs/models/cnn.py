"""Small convolutional networks for two CPU cores: the MNIST CNN and a CNN for photographs."""

from typing import Literal

import tensorflow as tf

layers = tf.keras.layers


def mnist_cnn(units: int = 128) -> tf.keras.Model:
    """Return the two-convolution network of Horovod's Keras MNIST example, which report M uses.

    Input uint8 [batch, 28, 28, 1], output probabilities [batch, 10]; 1,199,882 parameters. The first dense layer has
    nearly all of them, and the convolutions nearly all of the computation: more units mean more bytes to exchange for
    about the same computation.
    """
    return tf.keras.Sequential([
        layers.Input((28, 28, 1), dtype="uint8"),
        layers.Rescaling(1 / 255),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Dropout(0.25),
        layers.Flatten(),
        layers.Dense(units, activation="relu"),
        layers.Dropout(0.5),
        layers.Dense(10, activation="softmax"),
    ], name="mnist_cnn")


def photo_cnn(image_size: int, classes: int, width: int = 16,
              norm: Literal["batch", "group"] = "batch") -> tf.keras.Model:
    """Return a network of five convolutions with batch or group norm for small photographs.

    Input uint8 [batch, image_size, image_size, 3], output probabilities [batch, classes]. Batch norm normalizes over
    the images of one worker's batch, so the result depends on how a global batch is divided among workers; group norm
    (Wu and He 2018, arXiv 1803.08494) normalizes each image by itself.
    """
    images = layers.Input((image_size, image_size, 3), dtype="uint8")
    x = layers.Rescaling(1 / 127.5, offset=-1)(images)
    for channels, strides in ((width, 2), (2 * width, 2), (4 * width, 2), (8 * width, 2), (8 * width, 1)):
        x = layers.Conv2D(channels, 3, strides=strides, padding="same", use_bias=False)(x)
        # Keras' default of 0.99 averages over about a hundred steps: a small data set has that many in ten epochs.
        x = layers.BatchNormalization(momentum=0.9)(x) if norm == "batch" else layers.GroupNormalization(8)(x)
        x = layers.ReLU()(x)
    x = layers.GlobalAveragePooling2D()(x)
    return tf.keras.Model(images, layers.Dense(classes, activation="softmax")(x), name="photo_cnn")
