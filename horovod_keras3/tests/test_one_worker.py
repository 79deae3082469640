"""The layer in one process: what it refuses, and what it saves."""

from __future__ import annotations

import json
import zipfile

import pytest
import tensorflow as tf

import horovod_keras3 as hvd

K = tf.keras


def sgd(**arguments) -> K.optimizers.Optimizer:
    return K.optimizers.SGD(0.1, **arguments)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: hvd.DistributedOptimizer("adam"), "takes an optimizer of Keras 3, not 'adam'"),
    (lambda: hvd.DistributedOptimizer(hvd.DistributedOptimizer(sgd())), "call DistributedOptimizer once"),
    (lambda: hvd.DistributedOptimizer(K.mixed_precision.LossScaleOptimizer(hvd.DistributedOptimizer(sgd()))),
     "put the LossScaleOptimizer inside"),
    (lambda: hvd.DistributedOptimizer(sgd(), op=hvd.hvd.Adasum), "op must be Average or Sum"),
    (lambda: hvd.DistributedOptimizer(sgd(gradient_accumulation_steps=2), backward_passes_per_step=2),
     "both add up gradients: choose one"),
    (lambda: hvd.elastic.KerasState(K.Sequential([K.layers.Dense(1)]), sgd()), "call model.build"),
])
def test_what_cannot_work_is_refused(make, message):
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
        make()


def test_a_graph_of_tensorflow_1_is_refused():
    with tf.Graph().as_default(), pytest.raises(ValueError, match="remove disable_eager_execution"):
        hvd.DistributedOptimizer(sgd())


def test_a_process_set_in_an_elastic_job_is_refused(monkeypatch):
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    with pytest.raises(ValueError, match="an elastic job has one process set"):
        hvd.DistributedOptimizer(sgd(), process_set=hvd.ProcessSet([0]))


def model(optimizer, **compiled) -> K.Model:
    network = K.Sequential([K.layers.Input((5,), dtype="int32"), K.layers.Embedding(9, 2), K.layers.Flatten(),
                            K.layers.Dense(1)])
    network.compile(optimizer, "mse", **compiled)
    return network


@pytest.mark.parametrize(("wrapped", "compiled", "message"), [
    ({}, {"jit_compile": True}, "compile the model with jit_compile=False"),
    ({"backward_passes_per_step": 2}, {}, "set sparse_as_dense=True"),
])
def test_a_step_that_cannot_work_is_refused(wrapped, compiled, message):
    network = model(hvd.DistributedOptimizer(sgd(), **wrapped), **compiled)
    with pytest.raises(ValueError, match=message):
        network.fit(tf.zeros((4, 5), tf.int32), tf.zeros((4, 1)), verbose=0)


def test_a_loss_scale_optimizer_outside_is_refused():
    """`compile` puts it there if the optimizer is already distributed and the model was made under mixed_float16."""
    distributed = hvd.DistributedOptimizer(sgd())
    K.mixed_precision.set_global_policy("mixed_float16")
    try:
        network = model(distributed)
    finally:
        K.mixed_precision.set_global_policy("float32")
    with pytest.raises(ValueError, match=r"DistributedOptimizer\(LossScaleOptimizer"):
        network.fit(tf.zeros((4, 5), tf.int32), tf.zeros((4, 1)), verbose=0)


def test_so_it_is_in_eager_mode():
    """There Keras calls the branch itself, so no graph shows that it is one."""
    outside = K.mixed_precision.LossScaleOptimizer(hvd.DistributedOptimizer(sgd()))
    begin = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    with pytest.raises(ValueError, match="put the LossScaleOptimizer inside"):
        model(outside, run_eagerly=True).fit(tf.zeros((4, 5), tf.int32), tf.zeros((4, 1)), verbose=0, callbacks=[begin])


def passes_of(number: int) -> tuple:
    """Return an optimizer that adds up this number of passes, and two variables."""
    hvd.init()
    optimizer = hvd.DistributedOptimizer(sgd(), backward_passes_per_step=number)
    variables = tf.Variable(0.0), tf.Variable(0.0)
    optimizer.build(variables)
    return optimizer, *variables


def test_the_passes_of_an_update_have_the_same_variables():
    """Otherwise the gradients of the first pass would be lost: the update applies those of the last one."""
    for wrap in (tf.function, lambda step: step):
        optimizer, head, body = passes_of(2)

        def both():
            optimizer.apply([tf.constant(1.0)], [head])  # noqa: B023 - called at once
            optimizer.apply([tf.constant(1.0)], [body])  # noqa: B023

        with pytest.raises(ValueError, match="have gradients of different variables"):
            wrap(both)()
        assert (float(head), float(body)) == (0, 0)


def test_momentum_correction_scales_only_velocities():
    """Muon's momentum is a mean of gradients, without the learning rate."""
    network = model(K.optimizers.Muon(0.1, momentum=0.9))
    schedule = hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5)
    with pytest.raises(ValueError, match="the velocity of Muon is unknown: pass momentum_correction=False"):
        network.fit(tf.zeros((4, 5), tf.int32), tf.zeros((4, 1)), epochs=2, verbose=0, callbacks=[schedule])


def test_a_saved_model_is_the_one_that_keras_saves(tmp_path):
    configs = []
    for wrap in (lambda each: each, hvd.DistributedOptimizer):
        model(wrap(sgd(name="sgd")), jit_compile=False).save(tmp_path / "model.keras")
        with zipfile.ZipFile(tmp_path / "model.keras") as file:
            configs.append(json.loads(file.read("config.json"))["compile_config"])
    assert configs[0] == configs[1]
    with zipfile.ZipFile(tmp_path / "model.keras") as file:
        assert b"orovod" not in b"".join(file.read(name) for name in file.namelist())


def test_a_config_makes_an_optimizer_again():
    optimizer = hvd.DistributedOptimizer(K.optimizers.Adam(0.01, clipnorm=1.0))
    config = optimizer.get_config()
    assert optimizer.from_config(config).get_config() == config
