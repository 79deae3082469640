"""Lab 7: the transports compute the same, the bytes are those of the parameters, the crossover is the smallest one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from labs import lab07_vit as lab
from labs.exercises.lab07_vit import reference_attention, reference_patches
from labs.launch import local
from labs.run.errors import LabError
from tests.exercises.solved import solved

DEMO = lab.PRESETS["demo"]
TINY = dataclasses.replace(DEMO, width=16, depth=1, images=256, epochs=2)


@pytest.mark.workers
@pytest.mark.alone
def test_two_workers_over_gloo_send_the_parameters_whatever_the_batch():
    config = dataclasses.replace(TINY, width=64, batch_size=16, backend="gloo", epochs=1)
    record = local.run(lab, config, workers=2, oversubscribe=True)
    rows, gradients = record["tables"]["wire"], record["metrics"]["gradient_bytes"]
    assert record["layout"]["backend"] == "Gloo"
    assert record["machine"]["cycle_time_ms"] == 1, "a shorter one costs a Gloo worker 40 % of a core"
    assert record["machine"]["fusion_threshold_mb"] == 128
    assert gradients == 4 * record["metrics"]["parameters"] == 4 * 64_266
    assert [row["batch_size"] for row in rows] == [16, 32, 64]
    assert [row["steps_per_epoch"] for row in rows] == [8, 4, 2]
    for row in rows:
        assert row["predicted_bytes_per_step"] == 2 * gradients
        assert abs(row["difference"]) < 0.05
    solved("lab07.q1")


@pytest.mark.workers
def test_one_worker_and_two_compute_the_same_at_the_same_global_batch():
    one = local.run(lab, TINY, workers=1)
    two = local.run(lab, dataclasses.replace(TINY, batch_size=16, traffic=False), workers=2, oversubscribe=True)
    assert one["layout"]["global_batch_size"] == two["layout"]["global_batch_size"] == 32
    for mine, theirs in zip(one["history"], two["history"], strict=True):
        assert mine["learning_rate"] == pytest.approx(theirs["learning_rate"])
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
    assert one["tables"]["wire"] == two["tables"]["wire"] == []
    solved("lab07.q2", "lab07.q3")


@pytest.mark.workers
def test_nccl_is_not_replaced_where_there_is_none():
    with pytest.raises(LabError, match="--backend nccl needs GPUs and a Horovod that is built with NCCL"):
        local.run(lab, dataclasses.replace(TINY, backend="nccl"), workers=2, oversubscribe=True)


def test_the_patches_and_the_attention_of_the_exercises_are_those_of_keras():
    rng = np.random.default_rng(1)
    images = rng.uniform(-1, 1, (2, 32, 32, 3))
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
