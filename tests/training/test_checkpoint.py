"""Checkpoints come back as they were, or not at all."""

from __future__ import annotations

import dataclasses
import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf

from labs.run.errors import LabError
from labs.training import checkpoint
from labs.training.checkpoint import Position
from tests.waiting import ends

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


def test_a_checkpoint_is_read_from_a_regular_file_alone(tmp_path, capsys):
    model = network(1)
    save(tmp_path, model, Position(2))
    os.mkfifo(tmp_path / "epoch-00003.npz")
    (tmp_path / "epoch-00004.npz").symlink_to("/dev/zero")
    (tmp_path / "epoch-00005.npz").touch()
    os.truncate(tmp_path / "epoch-00005.npz", 1 << 40)
    with ends(20):
        assert restore(tmp_path, model).epoch == 2
    said = capsys.readouterr().out
    assert said.count("not a regular file; trying the previous one") == 2
    assert re.search(r"it is larger than \S+ .*; trying the previous one", said)


def test_a_compressed_checkpoint_cannot_fill_the_memory(tmp_path, capsys):
    model = network(1)
    whole = np.load(save(tmp_path, model, Position(2)))
    with open(tmp_path / "epoch-00003.npz", "wb") as file:
        np.savez_compressed(file, **whole)
    assert restore(tmp_path, model).epoch == 2
    assert "epoch-00003.npz is damaged" in capsys.readouterr().out


def test_a_checkpoint_of_an_older_kit_is_named(tmp_path):
    folder = tmp_path / "it/checkpoints"
    path = save(folder, network(1), Position(1))
    arrays = dict(np.load(path))
    meta = json.loads(str(arrays["meta"]))
    del meta["identity"]
    with open(path, "wb") as file:
        np.savez(file, **arrays | {"meta": json.dumps(meta)})
    with pytest.raises(LabError, match=r"an older version of the kit saved .*epoch-00001.npz; choose another --name"):
        restore(folder, network(1))


def test_a_run_may_become_longer_but_not_another(tmp_path):
    save(tmp_path / "it/checkpoints", network(1), Position(1))
    assert restore(tmp_path / "it/checkpoints", network(1), Config(epochs=9)).epoch == 1
    with pytest.raises(LabError, match=r"'it' was started with --base-lr 0.1, not 0.2; omit what differs"):
        restore(tmp_path / "it/checkpoints", network(1), Config(base_lr=0.2))
    with pytest.raises(LabError, match="holds another model"):
        restore(tmp_path / "it/checkpoints", network(1, units=5))
