"""The layer in one process: what it refuses, and what it saves."""

import importlib
import json
import zipfile

import pytest
import tensorflow as tf

import horovod_keras3 as hvd

K = tf.keras
SCALED = K.mixed_precision.LossScaleOptimizer


def sgd(**arguments) -> K.optimizers.Optimizer:
    return K.optimizers.SGD(0.1, **arguments)


def model(optimizer, **compiled) -> K.Model:
    network = K.Sequential([K.layers.Input((5,), dtype="int32"), K.layers.Embedding(9, 2), K.layers.Flatten(),
                            K.layers.Dense(1)])
    network.compile(optimizer, "mse", **compiled)
    return network


def fit(network, *callbacks, **arguments) -> None:
    network.fit(tf.zeros((4, 5), tf.int32), tf.zeros((4, 1)), verbose=0, callbacks=list(callbacks), **arguments)


def passes_of_different_variables() -> None:
    """Otherwise the gradients of the first pass would be lost: the update applies those of the last one."""
    optimizer = hvd.DistributedOptimizer(sgd(), backward_passes_per_step=2)
    variables = tf.Variable(0.0), tf.Variable(0.0)
    optimizer.build(variables)
    for variable in variables:
        optimizer.apply([tf.constant(1.0)], [variable])


@pytest.mark.parametrize(("make", "message"), [
    (lambda: hvd.DistributedOptimizer("adam"), "takes an optimizer of Keras 3, not 'adam'"),
    (lambda: hvd.DistributedOptimizer(hvd.DistributedOptimizer(sgd())), "call DistributedOptimizer once"),
    (lambda: hvd.DistributedOptimizer(SCALED(hvd.DistributedOptimizer(sgd()))), "put the LossScaleOptimizer inside"),
    # `compile` does so if the optimizer is already distributed and the model was made under mixed_float16.
    (lambda: fit(model(SCALED(hvd.DistributedOptimizer(sgd()))), hvd.callbacks.BroadcastGlobalVariablesCallback(0)),
     "put the LossScaleOptimizer inside"),
    (lambda: fit(model(SCALED(hvd.DistributedOptimizer(sgd())))), r"DistributedOptimizer\(LossScaleOptimizer"),
    (lambda: hvd.DistributedOptimizer(sgd(), op=hvd.hvd.Adasum), "op must be Average or Sum"),
    (lambda: hvd.DistributedOptimizer(sgd(gradient_accumulation_steps=2), backward_passes_per_step=2),
     "both add up gradients: choose one"),
    (lambda: hvd.elastic.KerasState(K.Sequential([K.layers.Dense(1)]), sgd()), "call model.build"),
    (lambda: fit(model(hvd.DistributedOptimizer(sgd()), jit_compile=True)), "compile the model with jit_compile=False"),
    (lambda: fit(model(hvd.DistributedOptimizer(sgd(), backward_passes_per_step=2))), "set sparse_as_dense=True"),
    (passes_of_different_variables, "have gradients of different variables"),
    (lambda: fit(model(K.optimizers.Muon(0.1, momentum=0.9)), hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5),
                 epochs=2), "the velocity of Muon is unknown: pass momentum_correction=False"),
    (lambda: importlib.import_module("horovod_keras3.keras"), "is not a package"),  # Horovod's own layer, for Keras 2.
])
def test_what_cannot_work_is_refused(make, message):
    hvd.init()
    with pytest.raises((TypeError, ValueError, ModuleNotFoundError), match=message):
        make()


def test_a_saved_model_is_the_one_that_keras_saves(tmp_path):
    configs = []
    for wrap in (lambda each: each, hvd.DistributedOptimizer):
        model(wrap(sgd(name="sgd")), jit_compile=False).save(tmp_path / "model.keras")
        with zipfile.ZipFile(tmp_path / "model.keras") as file:
            texts = {name: file.read(name) for name in file.namelist()}
        configs.append(json.loads(texts["config.json"])["compile_config"])
    assert configs[0] == configs[1]
    assert b"orovod" not in b"".join(texts.values())
