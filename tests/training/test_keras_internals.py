"""Private Keras: only keras_internals touches it, and it does there what its functions promise."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from labs.run.paths import ROOT
from labs.training import keras_internals, schedule

HOMES = {Path("labs/training", f"{name}.py")
         for name in ("keras_internals", "keras2_internals", "keras3_internals")}
FOREIGN = {"os._exit", "module._make_subgraph", "argparse._SubParsersAction",
           "getattr(action, '_get_subactions', list)"}
"""Underscored names of other libraries than Keras."""
UNDOCUMENTED = {"compiled_loss", "compiled_metrics", "seed_generator", "train_function", "make_train_function",
                "train_step", "enable_tf_random_generator"}
NAMEDTUPLE = {"_asdict", "_fields", "_make", "_replace"}
"""Documented names; the underscore only keeps them apart from a tuple's fields."""
PRIVATE_MODULES = ("tensorflow.python", "keras.src", "keras.engine")


def private_uses(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the uses of private attributes of objects that a module has not defined itself, and of private modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            own = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)
                   and isinstance(each.ctx, ast.Store)} | {each.name for each in node.body
                                                           if isinstance(each, ast.FunctionDef)}
            own |= {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
            for each in ast.walk(node):
                if isinstance(each, ast.Attribute) and ast.unparse(each.value) in ("self", "cls") and each.attr in own:
                    each.attr = "known"  # So that the walk below, which comes later, leaves it out.
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            private = node.attr.startswith("_") and not node.attr.startswith("__") and node.attr not in NAMEDTUPLE
            if (private or node.attr in UNDOCUMENTED) and ast.unparse(node) not in FOREIGN:
                yield node
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr"):
            name = node.args[1]
            if isinstance(name, ast.Constant) and str(name.value).startswith("_") and name.value[:2] != "__" \
                    and ast.unparse(node) not in FOREIGN:
                yield node
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith(PRIVATE_MODULES):
            yield node


@pytest.mark.parametrize("source", [
    "model._train_counter", "getattr(layer, '_random_generator', None)", "model.compiled_loss.build(x)",
    "from tensorflow.python.util import _pywrap_util_port", "class A(B):\n    def f(self):\n        self._writers",
])
def test_a_private_use_is_found(source):
    assert list(private_uses(ast.parse(source)))


@pytest.mark.parametrize("source", [
    "os._exit(1)", "model.optimizer", "class A:\n    def f(self):\n        self._x = 1\n        self._x", "x.__dict__",
])
def test_what_is_public_or_its_own_is_left_alone(source):
    assert not list(private_uses(ast.parse(source)))


def test_no_other_module_uses_private_keras():
    files = [path.relative_to(ROOT) for folder in ("labs", "benchmarks", "solutions") for path in
             sorted((ROOT / folder).rglob("*.py"))]
    assert not HOMES - set(files)
    result = [f"{path}:{node.lineno}: {ast.unparse(node)}" for path in files if path not in HOMES
              for node in private_uses(ast.parse((ROOT / path).read_text()))]
    assert not result, result


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
    assert keras_internals.learning_rate_now(model.optimizer) == 0.0
    keras_internals.start_counting(model)
    keras_internals.set_steps_per_execution(model, 1)
    model.fit(batches(3), steps_per_epoch=3, verbose=0)
    assert keras_internals.steps_taken(model) == 3
    assert keras_internals.learning_rate_now(model.optimizer) == pytest.approx(0.03)
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
    keras_internals.make_dropout_resumable()
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
