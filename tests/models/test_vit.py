"""Vision transformers have the published sizes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from labs.models.transformer import vit
from labs.run.errors import LabError


@pytest.mark.slow
def test_the_base_has_its_published_size():
    assert vit(224, 1000, 768, 12, 12).count_params() == 86_567_656


def test_the_order_of_the_patches_matters():
    """Without positions, a transformer would see a bag of patches."""
    tf.keras.utils.set_random_seed(1)
    model = vit(32, 10, 48, 2, 3, patch_size=8)
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    moved = np.roll(images, 8, axis=2)
    assert model(images).shape == (4, 10)
    assert not np.allclose(model(images), model(moved), atol=1e-4)
    np.testing.assert_allclose(np.sum(model(images), axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("wrong", [(33, 48, 3), (32, 48, 5)])
def test_what_does_not_divide_is_refused(wrong):
    image_size, width, heads = wrong
    with pytest.raises(LabError, match="must divide evenly"):
        vit(image_size, 10, width, 1, heads, patch_size=8)
