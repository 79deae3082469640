"""Networks are the published ones; noise, error and recomputed gradients of the denoiser are right."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from labs import lab06_memory as lab
from labs.models import faces
from labs.models.denoising import Noise, denoiser, denoising_error, psnr
from labs.models.transformer import vit
from labs.run.errors import LabError

PUBLISHED = {"resnet50": (224, 25_557_032), "inception_v3": (299, 23_851_784), "vgg16_dense": (224, 138_357_544)}
"""Image size and parameters with 1000 classes."""


def images(count: int, side: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_age_networks_are_the_published_ones(name):
    """One number takes the place of 1000 classes: each class has a weight per feature and a bias."""
    size, published = PUBLISHED[name]
    model = faces.age_model(name, size)
    convolutions = [layer for layer in model._flatten_layers() if isinstance(layer, tf.keras.layers.Conv2D)]
    dense = [layer for layer in model._flatten_layers() if isinstance(layer, tf.keras.layers.Dense)]
    count = model.count_params()
    if name == "resnet50":
        count -= sum(layer.bias.shape[0] for layer in convolutions)
        count -= sum(int(weight.shape.num_elements()) for weight in model.non_trainable_weights)
    assert count + 999 * (model.get_layer("centuries").kernel.shape[0] + 1) == published
    multiplications = sum(int(np.prod(layer.kernel.shape) * np.prod(layer.output.shape[1:-1]))
                          for layer in convolutions + dense)
    assert multiplications == pytest.approx(faces.MULTIPLICATIONS[name], abs=0.005e9)


def test_the_order_of_the_patches_matters_and_sizes_that_do_not_fit_are_refused():
    """Without positions, a transformer would see a bag of patches."""
    tf.keras.utils.set_random_seed(1)
    model, given = vit(32, 10, 48, 2, 3, patch_size=8), images(4, 32)
    assert not np.allclose(model(given), model(np.roll(given, 8, axis=2)), atol=1e-4)
    np.testing.assert_allclose(np.sum(model(given), axis=1), 1, rtol=1e-5)
    assert vit(224, 1000, 768, 12, 12).count_params() == 86_567_656, "as published"
    with pytest.raises(LabError, match="must divide evenly"):
        vit(33, 10, 48, 1, 3, patch_size=8)
    with pytest.raises(LabError, match="--image-size 75 is its minimum"):
        faces.age_model("inception_v3", 74)


def test_a_denoisers_parameters_are_known_without_it_and_it_begins_as_the_identity():
    config = lab.Config(depth=11, width=5, image_size=16)
    for remedy in ("none", "recompute"):
        assert lab.network(dataclasses.replace(config, remedy=remedy)).count_params() == lab.parameters(config)
    assert denoiser(16, depth=17, width=64).count_params() == 557_443, "as published"
    noisy = tf.random.uniform([2, 12, 12, 3])
    np.testing.assert_array_equal(denoiser(12, 11, 5)(noisy), noisy)


def test_noise_belongs_to_the_image_and_has_its_level():
    clean = tf.cast(images(64, 32), tf.float32) / 255
    layer = Noise(25, seed=1)
    noise = (layer(clean) - clean).numpy()
    assert noise.std() == pytest.approx(25 / 255, rel=0.02)
    order = np.random.default_rng(1).permutation(64)
    np.testing.assert_array_equal(layer(tf.gather(clean, order)) - tf.gather(clean, order), noise[order])


def test_error_and_psnr_are_those_of_the_images_and_computing_again_gives_the_same_gradients():
    gradients, given = [], images(6, 12)
    for recompute in (False, True):
        tf.keras.utils.set_random_seed(3)
        network = denoiser(12, 9, 4, recompute=recompute)
        model = denoising_error(network, 25, seed=1)
        network.layers[-2].kernel.assign(tf.random.stateless_normal([3, 3, 4, 3], [1, 2]))  # Not zero.

        @tf.function
        def step(model=model):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(given))
            return tape.gradient(loss, model.trainable_variables)

        gradients.append(step())
        cleaned = network(Noise(25, 1)(tf.constant(given / 255, tf.float32)))
        right = ((cleaned - given / 255) ** 2).numpy().mean((1, 2, 3))
        np.testing.assert_allclose(model(given)[:, 0], right, rtol=1e-4)
        np.testing.assert_allclose(psnr(None, model(given)), 10 * np.log10(1 / right), rtol=1e-4)
    assert len(gradients[0]) == 2 * 9
    for plain, again in zip(*gradients, strict=True):
        assert float(tf.norm(plain)) > 0
        np.testing.assert_allclose(again, plain, rtol=1e-4, atol=1e-7)
