"""Lab 7: the transports compute the same, the bytes are those of the parameters, the crossover is the smallest one."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from labs import lab07_vit as lab
from labs.exercises.lab07_vit import reference_attention, reference_patches
from labs.run import local
from tests.exercises.solved import solved

TINY = dataclasses.replace(lab.PRESETS["demo"], width=16, depth=1, images=256, epochs=2)


@pytest.mark.workers
@pytest.mark.alone
def test_one_worker_and_two_over_gloo_compute_the_same_and_the_bytes_are_the_parameters():
    one = local.run(lab, TINY, workers=1)
    two = local.run(lab, dataclasses.replace(TINY, batch_size=16, backend="gloo"), workers=2, oversubscribe=True)
    for mine, theirs in zip(one["history"], two["history"], strict=True):
        assert mine["learning_rate"] == pytest.approx(theirs["learning_rate"])
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
    rows, gradients = two["tables"]["wire"], two["metrics"]["gradient_bytes"]
    assert one["tables"]["wire"] == [], "one worker sends nothing"
    assert two["layout"]["backend"] == "Gloo"
    assert gradients == 4 * two["metrics"]["parameters"]
    assert [row["steps_per_epoch"] for row in rows] == [8, 4, 2]
    for row in rows:
        assert row["predicted_bytes_per_step"] == 2 * gradients
        assert abs(row["difference"]) < 0.05
    solved("lab07.q1", "lab07.q2", "lab07.q3")


def test_the_patches_and_the_attention_of_the_exercises_are_those_of_keras():
    images = np.random.default_rng(1).uniform(-1, 1, (2, 32, 32, 3))
    convolution = tf.keras.layers.Conv2D(64, 8, 8, dtype="float64")
    tokens = np.reshape(convolution(images), (2, 16, 64))
    kernel, bias = convolution.get_weights()
    assert np.abs(reference_patches(images, 8) @ kernel.reshape(-1, 64) + bias - tokens).max() < 1e-6
    layer = tf.keras.layers.MultiHeadAttention(4, 16, dtype="float64")
    theirs = layer(tokens, tokens)[0]
    projections = layer.get_weights()
    q, k, v = (np.einsum("td,dhs->hts", tokens[0], projections[place]) + projections[place + 1][:, None]
               for place in (0, 2, 4))
    out, bias = projections[6:]
    assert np.abs(np.einsum("hts,hsd->td", reference_attention(q, k, v), out) + bias - theirs).max() < 1e-6
