"""The denoiser: its size, its beginning, its noise, and that computing activations again changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from labs import lab06_memory as lab
from labs.models.denoising import Noise, denoiser, denoising_error, identity, psnr


def images(count: int = 6, side: int = 12) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def test_dncnn_has_its_published_size():
    assert denoiser(16, depth=17, width=64).count_params() == 557_443


@pytest.mark.parametrize(("depth", "width"), [(3, 1), (6, 16), (11, 5)])
def test_parameters_are_known_without_the_model(depth, width):
    config = lab.Config(depth=depth, width=width, image_size=16)
    for remedy in ("none", "recompute"):
        model = lab.network(lab.dataclasses.replace(config, remedy=remedy))
        assert model.count_params() == lab.parameters(config)


def test_it_begins_as_the_identity():
    noisy = tf.random.uniform([2, 12, 12, 3])
    for network in (denoiser(12, 5, 4), identity(12)):  # Untrained, and the baseline.
        np.testing.assert_array_equal(network(noisy), noisy)


def test_noise_belongs_to_the_image_and_has_its_level():
    clean = tf.cast(images(64, 32), tf.float32) / 255
    layer = Noise(25, seed=1)
    noise = (layer(clean) - clean).numpy()
    assert noise.std() == pytest.approx(25 / 255, rel=0.02)
    assert abs(noise.mean()) < 0.002
    order = np.random.default_rng(1).permutation(64)
    np.testing.assert_array_equal(layer(tf.gather(clean, order)) - tf.gather(clean, order), noise[order])
    assert not np.array_equal(Noise(25, seed=2)(clean) - clean, noise)


def test_error_and_psnr_are_those_of_the_images():
    network, given = denoiser(12, 4, 3), images()
    error = denoising_error(network, 25, seed=1)(given)
    clean = given / 255
    cleaned = network(Noise(25, 1)(tf.constant(clean, tf.float32)))
    right = ((cleaned - clean) ** 2).numpy().mean((1, 2, 3))
    np.testing.assert_allclose(error[:, 0], right, rtol=1e-4)
    np.testing.assert_allclose(psnr(None, error), 10 * np.log10(1 / right), rtol=1e-4)


def test_computing_again_gives_the_same_gradients():
    gradients = []
    for recompute in (False, True):
        tf.keras.utils.set_random_seed(3)
        model = denoising_error(denoiser(12, 9, 4, recompute=recompute), 25, seed=1)
        model.layers[-2].layers[-2].kernel.assign(tf.random.stateless_normal([3, 3, 4, 3], [1, 2]))  # Not zero.

        @tf.function
        def step(model=model):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(images()))
            return tape.gradient(loss, model.trainable_variables)

        gradients.append(step())
    assert len(gradients[0]) == 2 * 9
    for plain, again in zip(*gradients, strict=True):
        assert float(tf.norm(plain)) > 0
        np.testing.assert_allclose(again, plain, rtol=1e-4, atol=1e-7)
