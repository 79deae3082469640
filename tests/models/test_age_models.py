"""The age networks are the published ones, and what they return is an age."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from labs.models import faces
from labs.run.errors import LabError

PUBLISHED = {"resnet50": 25_557_032, "inception_v3": 23_851_784, "vgg16_dense": 138_357_544}  # With 1000 classes.
PUBLISHED_SIZE = {"resnet50": 224, "inception_v3": 299, "vgg16_dense": 224}


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_they_are_the_published_networks(name):
    """One number takes the place of 1000 classes: each class has a weight per feature and a bias.

    Keras' ResNet50 is the first version: 3.86 billion multiplications, not the 4.1 of v1.5.
    """
    model = faces.age_model(name, PUBLISHED_SIZE[name])
    convolutions = [layer for layer in model._flatten_layers() if isinstance(layer, tf.keras.layers.Conv2D)]
    dense = [layer for layer in model._flatten_layers() if isinstance(layer, tf.keras.layers.Dense)]
    count = model.count_params()
    assert f"{count:,}" in faces.__doc__
    if name == "resnet50":
        count -= sum(layer.bias.shape[0] for layer in convolutions)
        count -= sum(int(weight.shape.num_elements()) for weight in model.non_trainable_weights)
    assert count + 999 * (model.get_layer("centuries").kernel.shape[0] + 1) == PUBLISHED[name]
    multiplications = sum(int(np.prod(layer.kernel.shape) * np.prod(layer.output.shape[1:-1]))
                          for layer in convolutions + dense)
    assert multiplications == pytest.approx(faces.MULTIPLICATIONS[name], abs=0.005e9)
    assert f"{faces.MULTIPLICATIONS[name] / 1e9:.2f}\n" in faces.__doc__


@pytest.mark.parametrize(("name", "image_size"), [("small", 48), ("vgg16", 32)])
def test_bytes_go_in_and_years_come_out(name, image_size):
    tf.keras.utils.set_random_seed(1)
    model = faces.age_model(name, image_size)
    assert (model.input_shape, model.input.dtype) == ((None, image_size, image_size, 3), tf.uint8)
    images = np.random.default_rng(1).integers(0, 256, (4, image_size, image_size, 3), np.uint8)
    years = model(images).numpy()
    assert years.shape == (4, 1)
    assert np.all((years > 0) & (years < 120)), "the first guess is a person's age"
    rescaling = model.layers[1]
    assert rescaling(np.array([0, 255], np.uint8)).numpy().tolist() == [-1, 1]


@pytest.mark.parametrize(("name", "smallest"), [("inception_v3", 75), ("resnet50", 32)])
def test_images_too_small_for_a_network_are_refused(name, smallest):
    with pytest.raises(LabError, match=f"--image-size {smallest} is its minimum"):
        faces.age_model(name, smallest - 1)
