"""Checkpoints come back as they were, or not at all."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest
import tensorflow as tf

from labs.run.errors import LabError
from labs.training import checkpoint
from labs.training.checkpoint import Position

IDENTITY = {"data": {}, "settings": {}}


@dataclasses.dataclass(frozen=True)
class Config:
    epochs: int = 3
    base_lr: float = 0.1


def network(seed: int, units: int = 3) -> tf.keras.Model:
    tf.keras.utils.set_random_seed(seed)
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((4,)), layers.Dense(units), layers.BatchNormalization(), layers.Dense(2)])
    model.compile(tf.keras.optimizers.Adam(), "mse")
    model.fit(np.ones((8, 4)) * seed, np.zeros((8, 2)), epochs=2, verbose=0)
    return model


def save(folder, model, position):
    return checkpoint.save(folder, model, position, Config(), IDENTITY)


def restore(folder, model, config=Config()):
    return checkpoint.restore(folder, model, config, IDENTITY)


def state(model: tf.keras.Model) -> list[np.ndarray]:
    return [variable.numpy() for variable in [*model.variables, *model.optimizer.variables]]


def test_weights_optimizer_and_position_come_back(tmp_path):
    saved, other = network(1), network(2)
    assert restore(tmp_path, other) == Position()
    position = Position(2, ({"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}))
    save(tmp_path, saved, position)
    assert restore(tmp_path, other) == position
    for mine, theirs in zip(state(saved), state(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_last_two_are_kept_and_a_damaged_one_is_passed_over(tmp_path, capsys):
    model = network(1)
    for epoch in (1, 2, 3):
        save(tmp_path, model, Position(epoch))
    assert sorted(os.listdir(tmp_path)) == ["epoch-00002.npz", "epoch-00003.npz"]
    newest = tmp_path / "epoch-00003.npz"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert restore(tmp_path, model).epoch == 2
    assert "epoch-00003.npz is damaged" in capsys.readouterr().out


def test_a_run_may_become_longer_but_not_another(tmp_path):
    save(tmp_path / "it/checkpoints", network(1), Position(1))
    assert restore(tmp_path / "it/checkpoints", network(1), Config(epochs=9)).epoch == 1
    with pytest.raises(LabError, match=r"'it' was started with --base-lr 0.1, not 0.2; omit what differs"):
        restore(tmp_path / "it/checkpoints", network(1), Config(base_lr=0.2))
    with pytest.raises(LabError, match="holds another model"):
        restore(tmp_path / "it/checkpoints", network(1, units=5))
