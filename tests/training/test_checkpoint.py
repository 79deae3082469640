"""Checkpoints come back as they were, or not at all, even from a damaged file."""

import dataclasses
import itertools
import os

import pytest
import tensorflow as tf

from labs.run.errors import LabError
from labs.training import checkpoint
from labs.training.checkpoint import Position

IDENTITY = {"data": {}, "settings": {}}


@dataclasses.dataclass(frozen=True)
class Config:
    epochs: int = 3


def network(units: int = 40) -> tf.keras.Model:
    # More than the 4096 bytes that zipfile reads at once: what it has read to the end, it has compared with its CRC.
    model = tf.keras.Sequential([tf.keras.layers.Input((40,)), tf.keras.layers.Dense(units)])
    model.compile(tf.keras.optimizers.SGD(momentum=0.9), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture(scope="module")
def model() -> tf.keras.Model:
    return network()


def fill(model: tf.keras.Model, value: float) -> None:
    """Set all that a checkpoint holds to a value that tells which checkpoint it is."""
    for variable in [*model.variables, *model.optimizer.variables]:
        variable.assign(tf.fill(variable.shape, tf.cast(value, variable.dtype)))


def save(folder, model: tf.keras.Model, position):
    position = position if isinstance(position, Position) else Position(position)
    fill(model, position.epoch)
    return checkpoint.save(folder, model, position, Config(), IDENTITY)


def restored(folder, model: tf.keras.Model) -> Position:
    """Return the position of the checkpoint that is taken, when all values are that one's."""
    fill(model, -1)
    position = checkpoint.restore(folder, model, Config(), IDENTITY)
    for variable in [*model.variables, *model.optimizer.variables]:
        assert (variable.numpy() == (position.epoch or -1)).all(), variable.name
    return position


def test_weights_optimizer_and_position_come_back_from_the_last_two(tmp_path, model):
    assert restored(tmp_path, model) == Position()
    position = Position(3, ({"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}, {"epoch": 3, "loss": 0.125}), 2, 0.5)
    for each in (1, 2, position):
        save(tmp_path, model, each)
    assert sorted(os.listdir(tmp_path)) == ["epoch-00002.npz", "epoch-00003-step-0000002.npz"]
    assert restored(tmp_path, model) == position


def test_another_model_is_refused(tmp_path, model):
    save(tmp_path / "it/checkpoints", model, 1)
    with pytest.raises(LabError, match="holds another model"):
        restored(tmp_path / "it/checkpoints", network(units=5))


@pytest.mark.slow
def test_a_flipped_byte_anywhere_is_found_or_changes_nothing(tmp_path, model, capsys):
    """Every byte that says how the first weights lie in the file, and every 97th of all others.

    6 makes of "<f4" a "<f2", whose numbers are others and half as many bytes.
    """
    save(tmp_path, model, 1)
    newest = save(tmp_path, model, 2)
    whole = newest.read_bytes()
    header = whole.index(b"v0000.npy")
    for offset, flip in itertools.product([*range(header, header + 160), *range(0, len(whole), 97)], (1, 6)):
        newest.write_bytes(whole[:offset] + bytes([whole[offset] ^ flip]) + whole[offset + 1 :])
        taken = restored(tmp_path, model).epoch
        assert ("is damaged" in capsys.readouterr().out) == (taken == 1), (offset, flip)
    newest.write_bytes(whole[: len(whole) // 2])
    assert restored(tmp_path, model).epoch == 1
