"""Age estimation networks: a small CNN, and the three networks that report A compares.

Input uint8 [batch, image_size, image_size, 3], output years [batch, 1]. The three are those of keras.applications,
untrained, with one output instead of 1000 classes:

    network           parameters    with 1000 classes, as published    gradients, MB    multiplications, billions
    resnet50          23,589,761                         25,557,032             94.1                         3.86
    inception_v3      21,804,833                         23,851,784             87.1                         5.71
    vgg16             14,715,201                                                58.9                        15.35
    vgg16_dense      134,264,641                        138,357,544            537.1                        15.47

The multiplications are those of an image's forward pass, at 224 pixels, InceptionV3 at 299. Keras' ResNet50 is the
first version; the 4.1 billion that are often quoted belong to v1.5. The published count of ResNet50 is without the
biases of the convolutions, which batch norm makes useless, and without batch norm's statistics. `vgg16` averages each
feature over the image instead of two hidden layers of 4096 units, as ResNet50 and InceptionV3 do.
"""

import tensorflow as tf

from labs.run.errors import LabError

layers = tf.keras.layers
applications = tf.keras.applications

SMALLEST_SIZE = {"resnet50": 32, "inception_v3": 75, "vgg16": 32, "vgg16_dense": 32}  # Side of an image in pixels.
MULTIPLICATIONS = {"resnet50": 3.86e9, "inception_v3": 5.71e9, "vgg16": 15.35e9, "vgg16_dense": 15.47e9}


def age_model(name: str, image_size: int) -> tf.keras.Model:
    """Return a network by its name: "small", "resnet50", "inception_v3", "vgg16" or "vgg16_dense"."""
    smallest = SMALLEST_SIZE.get(name, 16)
    if image_size < smallest:
        raise LabError(f"{name} shrinks {image_size} pixels to nothing; --image-size {smallest} is its minimum")
    images = layers.Input((image_size, image_size, 3), dtype="uint8")
    features = _five_convolutions(images) if name == "small" else _published(name, images)
    # In centuries: the initial estimate is 40 years, and weights of the usual size have an effect.
    centuries = layers.Dense(1, bias_initializer=tf.keras.initializers.Constant(0.4), name="centuries")(features)
    return tf.keras.Model(images, layers.Rescaling(100.0, name="years")(centuries), name=name)


def _five_convolutions(images):
    """Return features, [batch, 128]; no batch norm, so gradients do not depend on how a global batch is divided."""
    x = layers.Rescaling(1 / 127.5, offset=-1)(images)
    for channels, strides in ((16, 2), (32, 2), (64, 2), (128, 2), (128, 1)):
        x = layers.Conv2D(channels, 3, strides=strides, padding="same", activation="relu")(x)
    return layers.GlobalAveragePooling2D()(x)


def _published(name: str, images):
    """Return the features of a network of keras.applications, [batch, features]."""
    pixels = layers.Rescaling(1 / 127.5, offset=-1)(images)
    options = {"weights": None, "input_shape": images.shape[1:]}
    if name == "vgg16_dense":
        whole = applications.VGG16(**options, include_top=True)
        return tf.keras.Model(whole.input, whole.get_layer("fc2").output, name="vgg16")(pixels)
    build = {"resnet50": applications.ResNet50, "inception_v3": applications.InceptionV3, "vgg16": applications.VGG16}
    return build[name](**options, include_top=False, pooling="avg")(pixels)
