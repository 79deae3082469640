"""Keras' private attributes: only keras_internals uses them, and each of its functions does what it promises."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from labs.run.paths import ROOT
from labs.training import keras_internals, schedule

HOME = "labs/training/keras_internals.py"


def test_no_other_module_uses_private_keras():
    """`_make_subgraph` is Horovod's, and `_current_frames` Python's."""
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "SLF001", "--exclude", HOME]
    done = subprocess.run([*ruff, "--output-format", "concise", "labs", "benchmarks", "solutions"], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines()
             if "SLF001" in line and not re.search("_make_subgraph|_current_frames", line)]
    assert not found, found
    assert "_make_subgraph" in done.stdout, done.stderr
    python = [path for path in (ROOT / "labs").rglob("*.py") if str(path.relative_to(ROOT)) != HOME
              and "from tensorflow.python" in path.read_text()]
    assert not python


@pytest.fixture(scope="module")
def model():
    network = tf.keras.Sequential([
        tf.keras.layers.Input((4,)), tf.keras.layers.Dense(8), tf.keras.layers.Dropout(0.5), tf.keras.layers.Dense(2),
    ])
    optimizer = tf.keras.optimizers.SGD(schedule.Warmup(0.0, 0.04, 4))
    optimizer.build(network.trainable_variables)
    keras_internals.compile_for_steps(network, optimizer, tf.keras.losses.get("mse"), ())
    return network


def batches(count: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors((np.ones((3, 4), "f"), np.ones((3, 2), "f"), np.ones(3, "f"))).repeat(count)


def test_steps_are_counted_and_the_learning_rate_is_that_of_the_next(model):
    assert float(model.optimizer.learning_rate) == 0.0
    keras_internals.start_counting(model)
    keras_internals.set_steps_per_execution(model, 1)
    model.fit(batches(3), steps_per_epoch=3, verbose=0)
    assert keras_internals.steps_taken(model) == 3
    assert float(model.optimizer.learning_rate) == pytest.approx(0.03)
    before = int(model.optimizer.iterations)
    loss = keras_internals.take_steps(model, iter(batches(9)), 5)
    assert np.isfinite(loss)
    assert int(model.optimizer.iterations) == before + 5


def test_a_step_is_traced_once_whatever_the_steps_per_call():
    traced = []

    class Counted(tf.keras.layers.Layer):
        def call(self, x, training=None):
            if training:
                traced.append(x)
            return x

    network = tf.keras.Sequential([tf.keras.layers.Input((4,)), Counted(), tf.keras.layers.Dense(2)])
    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.build(network.trainable_variables)
    keras_internals.compile_for_steps(network, optimizer, tf.keras.losses.get("mse"), ("mae",))
    data = iter(batches(20))
    for steps in (1, 3, 2):
        keras_internals.take_steps(network, data, steps)
    assert int(optimizer.iterations) == 6
    assert len(traced) == 1


def test_dropout_repeats_with_its_seed_and_its_state():
    network = tf.keras.Sequential([tf.keras.layers.Input((64,)), tf.keras.layers.Dropout(0.5)])
    ones = tf.ones((1, 64))

    def mask() -> list[float]:
        return network(ones, training=True).numpy().ravel().tolist()

    keras_internals.reseed_dropout(network, lambda layer: 7 + layer)
    (state,) = keras_internals.random_state(network)
    first, saved, second = mask(), state.numpy(), mask()
    assert first != second
    state.assign(saved)
    assert mask() == second
    keras_internals.reseed_dropout(network, lambda layer: 7 + layer)
    assert mask() == first
