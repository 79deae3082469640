"""CIFAR-10 networks: small CNNs, ResNet-10 and ResNet-18.

Input uint8 [batch, 32, 32, 3], output probabilities [batch, classes].
"""

from collections.abc import Sequence

import tensorflow as tf

layers = tf.keras.layers


def cifar_cnn(classes: int = 10, width: int = 16, units: int = 256) -> tf.keras.Model:
    """Return a network of three convolutions and a hidden layer of `units`, without batch norm.

    Without it a layer of dead ReLUs stays dead: the network does not recover from a first step that is too large.
    """
    network = [layers.Input((32, 32, 3), dtype="uint8"), layers.Rescaling(1 / 127.5, offset=-1)]
    for channels in (width, 2 * width, 4 * width):
        network.append(layers.Conv2D(channels, 3, strides=2, padding="same", activation="relu"))
    network += [layers.Flatten(), layers.Dense(units, activation="relu"), layers.Dense(classes, activation="softmax")]
    return tf.keras.Sequential(network, name="cifar_cnn")


def cifar_cnn_bn(classes: int) -> tf.keras.Model:
    """Return `cifar_cnn` with batch norm and no hidden layer, which tolerates higher learning rates."""
    network = [layers.Input((32, 32, 3), dtype="uint8"), layers.Rescaling(1 / 127.5, offset=-1)]
    for channels in (16, 32, 64):
        network += [layers.Conv2D(channels, 3, strides=2, padding="same", use_bias=False),
                    layers.BatchNormalization(momentum=0.9), layers.ReLU()]
    network += [layers.Flatten(), layers.Dense(classes, activation="softmax")]
    return tf.keras.Sequential(network, name="cifar_cnn_bn")


def resnet18(classes: int = 10) -> tf.keras.Model:
    """Return ResNet-18 as it is used on CIFAR-10 (He et al. 2016, arXiv 1512.03385, with a first stride of 1).

    It has 11,173,962 trainable parameters.
    """
    blocks = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))
    return _resnet("resnet18", classes, 64, 1, blocks)


def resnet10(classes: int = 10) -> tf.keras.Model:
    """Return a smaller ResNet for two CPU cores: half the blocks, a quarter of the channels, a first stride of 2."""
    return _resnet("resnet10", classes, 16, 2, ((16, 1), (32, 2), (64, 2), (128, 2)))


def _resnet(name: str, classes: int, width: int, stride: int, blocks: Sequence[tuple[int, int]]) -> tf.keras.Model:
    """Return a convolution, residual blocks (channels and stride of each), average pooling and a softmax layer."""
    images = layers.Input((32, 32, 3), dtype="uint8")
    x = layers.Rescaling(1 / 127.5, offset=-1)(images)
    x = layers.ReLU()(_convolution(x, width, 3, stride))
    for channels, step in blocks:
        x = _block(x, channels, step)
    x = layers.GlobalAveragePooling2D()(x)
    return tf.keras.Model(images, layers.Dense(classes, activation="softmax")(x), name=name)


def _block(x, channels: int, stride: int):
    """Return a residual block: two convolutions and the shortcut around them."""
    y = layers.ReLU()(_convolution(x, channels, 3, stride))
    y = _convolution(y, channels, 3, 1)
    if stride > 1 or x.shape[-1] != channels:
        x = _convolution(x, channels, 1, stride)
    return layers.ReLU()(layers.Add()([x, y]))


def _convolution(x, channels: int, kernel: int, stride: int):
    x = layers.Conv2D(channels, kernel, stride, "same", use_bias=False, kernel_initializer="he_normal")(x)
    # Keras' default of 0.99 averages over about a hundred steps: with large batches, several epochs.
    return layers.BatchNormalization(momentum=0.9)(x)
