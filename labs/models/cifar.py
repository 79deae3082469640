"""Networks for CIFAR-10's pictures of 32 x 32 pixels: one for two CPU cores, one for GPUs."""

from __future__ import annotations

import tensorflow as tf

layers = tf.keras.layers


def cifar_cnn(classes: int = 10, width: int = 16, units: int = 256) -> tf.keras.Model:
    """Return a network of three convolutions and a hidden layer, without batch norm.

    Input uint8 [batch, 32, 32, 3], output probabilities [batch, classes]. Nothing in it brings a layer of dead ReLUs
    back to life, so that a first step that is too long cannot be made good.

    Args:
        classes: Number of classes.
        width: Channels of the first convolution; they double twice.
        units: Of the hidden layer.
    """
    network = [layers.Input((32, 32, 3), dtype="uint8"), layers.Rescaling(1 / 127.5, offset=-1)]
    for channels in (width, 2 * width, 4 * width):
        network.append(layers.Conv2D(channels, 3, strides=2, padding="same", activation="relu"))
    network += [layers.Flatten(), layers.Dense(units, activation="relu"), layers.Dense(classes, activation="softmax")]
    return tf.keras.Sequential(network, name="cifar_cnn")


def resnet18(classes: int = 10) -> tf.keras.Model:
    """Return ResNet-18 as it is used on CIFAR-10 (He et al. 2016, arXiv 1512.03385, with a first stride of 1).

    Input uint8 [batch, 32, 32, 3], output probabilities [batch, classes]; 11,173,962 parameters that gradients move.
    """
    pictures = layers.Input((32, 32, 3), dtype="uint8")
    x = layers.Rescaling(1 / 127.5, offset=-1)(pictures)
    x = layers.ReLU()(_convolution(x, 64, 3, 1))
    for channels, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        x = _block(x, channels, stride)
    x = layers.GlobalAveragePooling2D()(x)
    return tf.keras.Model(pictures, layers.Dense(classes, activation="softmax")(x), name="resnet18")


def _block(x, channels: int, stride: int):
    """Two convolutions and the way around them."""
    y = layers.ReLU()(_convolution(x, channels, 3, stride))
    y = _convolution(y, channels, 3, 1)
    if stride > 1 or x.shape[-1] != channels:
        x = _convolution(x, channels, 1, stride)
    return layers.ReLU()(layers.Add()([x, y]))


def _convolution(x, channels: int, kernel: int, stride: int):
    x = layers.Conv2D(channels, kernel, stride, "same", use_bias=False, kernel_initializer="he_normal")(x)
    return layers.BatchNormalization()(x)
