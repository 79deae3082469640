"""Networks that tell a person's age from a face: a small one, and the three that report A compared.

Input uint8 [batch, image_size, image_size, 3], output years [batch, 1]. The three are those of keras.applications,
without anybody's weights, and with one number where their authors have 1000 classes:

    network           parameters    with 1000 classes, as published    gradients, MB
    resnet50          23,589,761                         25,557,032             94.1
    inception_v3      21,804,833                         23,851,784             87.1
    vgg16             14,715,201                                                58.9
    vgg16_dense      134,264,641                        138,357,544            537.1

What the literature counts for ResNet50 are the numbers that are learned, less the biases of its convolutions, which
Keras has and batch norm makes useless; for InceptionV3 it is all numbers, batch norm's statistics among them.

VGG16 is two networks here. As published, its features go through two hidden layers of 4096, which hold nine tenths of
its parameters and do a hundredth of its arithmetic: little to compute, much to send. `vgg16` averages each feature
over the picture instead, as ResNet50 and InceptionV3 do.
"""

from __future__ import annotations

import tensorflow as tf

from labs.run.errors import LabError

layers = tf.keras.layers
applications = tf.keras.applications

PUBLISHED_SIZE = {"resnet50": 224, "inception_v3": 299, "vgg16": 224, "vgg16_dense": 224}
"""Side in pixels of the pictures that the networks were made for."""
SMALLEST_SIZE = {"resnet50": 32, "inception_v3": 75, "vgg16": 32, "vgg16_dense": 32}


def age_model(name: str, image_size: int) -> tf.keras.Model:
    """Return a network by its name: "small", "resnet50", "inception_v3", "vgg16" or "vgg16_dense".

    Raises:
        LabError: The pictures are too small for it.
    """
    smallest = SMALLEST_SIZE.get(name, 16)
    if image_size < smallest:
        raise LabError(f"{name} shrinks {image_size} pixels to nothing; --image-size {smallest} is the least it takes")
    pictures = layers.Input((image_size, image_size, 3), dtype="uint8")
    features = _five_convolutions(pictures) if name == "small" else _published(name, pictures)
    # In centuries, so that the first guess is 40 years and a weight of usual size means something.
    centuries = layers.Dense(1, bias_initializer=tf.keras.initializers.Constant(0.4), name="centuries")(features)
    return tf.keras.Model(pictures, layers.Rescaling(100.0, name="years")(centuries), name=name)


def _five_convolutions(pictures):
    """Return features, [batch, 128], without batch norm: however a global batch is divided, its gradients are equal."""
    x = layers.Rescaling(1 / 127.5, offset=-1)(pictures)
    for channels, strides in ((16, 2), (32, 2), (64, 2), (128, 2), (128, 1)):
        x = layers.Conv2D(channels, 3, strides=strides, padding="same", activation="relu")(x)
    return layers.GlobalAveragePooling2D()(x)


def _published(name: str, pictures):
    """Return the features that a network of keras.applications finds in pictures, [batch, features]."""
    pixels = layers.Rescaling(1 / 127.5, offset=-1)(pictures)
    settings = {"weights": None, "input_shape": pictures.shape[1:]}
    if name == "vgg16_dense":
        whole = applications.VGG16(**settings, include_top=True)
        return tf.keras.Model(whole.input, whole.get_layer("fc2").output, name="vgg16")(pixels)
    build = {"resnet50": applications.ResNet50, "inception_v3": applications.InceptionV3, "vgg16": applications.VGG16}
    return build[name](**settings, include_top=False, pooling="avg")(pixels)
