"""Vision transformers have the published sizes, and learn."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from labs.models.transformer import SIZES, vit
from labs.run.errors import LabError


@pytest.mark.slow
@pytest.mark.parametrize(("size", "parameters"), [("tiny", 5_717_416), ("small", 22_050_664), ("base", 86_567_656)])
def test_the_published_sizes(size, parameters):
    assert vit(224, 1000, *SIZES[size]).count_params() == parameters


def test_the_order_of_the_patches_matters():
    """Without positions, a transformer would see a bag of patches."""
    tf.keras.utils.set_random_seed(1)
    model = vit(32, 10, 48, 2, 3, patch_size=8)
    pictures = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    moved = np.roll(pictures, 8, axis=2)
    assert model(pictures).shape == (4, 10)
    assert not np.allclose(model(pictures), model(moved), atol=1e-4)
    np.testing.assert_allclose(np.sum(model(pictures), axis=1), 1, rtol=1e-5)


@pytest.mark.slow
def test_it_learns_and_can_be_cloned():
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.models.clone_model(vit(16, 2, 32, 1, 2, patch_size=8))
    pictures = np.random.default_rng(0).integers(0, 256, (64, 16, 16, 3), dtype=np.uint8)
    pictures[:32, :8] //= 4  # One class is dark above.
    labels = np.repeat([0, 1], 32)
    model.compile(tf.keras.optimizers.Adam(0.003), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(pictures, labels, epochs=15, verbose=0)
    assert model.evaluate(pictures, labels, verbose=0)[1] > 0.9


@pytest.mark.parametrize("wrong", [(33, 48, 3), (32, 48, 5)])
def test_what_does_not_divide_is_refused(wrong):
    image_size, width, heads = wrong
    with pytest.raises(LabError, match="must divide evenly"):
        vit(image_size, 10, width, 1, heads, patch_size=8)
