"""Checkpoints come back as they were, or not at all."""

from __future__ import annotations

import dataclasses
import io
import json
import os

import numpy as np
import pytest
import tensorflow as tf

from labs.run.errors import LabError
from labs.training import checkpoint, keras_internals
from labs.training.checkpoint import Position
from tests.waiting import ends


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


def state(model: tf.keras.Model) -> list[np.ndarray]:
    return [variable.numpy() for variable in [*model.variables, *model.optimizer.variables]]


def test_weights_optimizer_and_position_come_back(tmp_path):
    saved, other = network(1), network(2)
    position = Position(2, ({"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}))
    checkpoint.save(tmp_path, saved, position, Config())
    assert checkpoint.restore(tmp_path, other, Config()) == position
    for mine, theirs in zip(state(saved), state(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_file_is_what_numpy_would_write():
    arrays = {"text": np.array("a"), "one": np.array(1.5), "none": np.zeros((0, 3)), "switches": np.array([True]),
              "rows": np.arange(6, dtype=np.float32).reshape(2, 3), "columns": np.arange(6).reshape(2, 3).T}
    ours, numpys = io.BytesIO(), io.BytesIO()
    checkpoint._write(ours, arrays)
    np.savez(numpys, **arrays | {"columns": np.ascontiguousarray(arrays["columns"])})
    assert ours.getvalue() == numpys.getvalue()


def test_content_is_the_value_whatever_its_shape_and_kind():
    for value in (np.float32(2), np.arange(6).reshape(2, 3), np.array([True, False]), np.zeros((0, 3), np.float32)):
        variable = tf.Variable(value)
        result = checkpoint.as_array(variable)
        assert (result.dtype, result.shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(result, value)
        assert np.shares_memory(result, checkpoint.as_array(variable)) or not value.size
        if result.dtype == np.float32:
            variable.assign_add(tf.ones_like(variable))
            np.testing.assert_array_equal(result, value)  # What was read stays what it was.


def test_nothing_to_restore_is_the_beginning(tmp_path):
    assert checkpoint.restore(tmp_path / "none", network(1), Config()) == Position()


def test_the_last_two_are_kept_and_a_damaged_one_is_passed_over(tmp_path, capsys):
    model = network(1)
    for epoch in (1, 2, 3):
        checkpoint.save(tmp_path, model, Position(epoch), Config())
    assert sorted(os.listdir(tmp_path)) == ["epoch-00002.npz", "epoch-00003.npz"]
    newest = tmp_path / "epoch-00003.npz"
    whole = newest.read_bytes()
    weight = whole.index(state(model)[0].tobytes())  # A flipped bit in a weight, which would train on unseen.
    for damaged in (b"", whole[:100], whole[:-1], whole[:weight] + bytes([whole[weight] ^ 1]) + whole[weight + 1 :]):
        newest.write_bytes(damaged)
        assert checkpoint.restore(tmp_path, model, Config()).epoch == 2
        assert "epoch-00003.npz is damaged" in capsys.readouterr().out


def test_a_checkpoint_is_read_from_a_regular_file_alone(tmp_path, capsys):
    model = network(1)
    checkpoint.save(tmp_path, model, Position(2), Config())
    os.mkfifo(tmp_path / "epoch-00003.npz")
    (tmp_path / "epoch-00004.npz").symlink_to("/dev/zero")
    with ends(20):
        assert checkpoint.restore(tmp_path, model, Config()).epoch == 2
    output = capsys.readouterr().out.splitlines()
    assert output == [f"labs: {tmp_path}/epoch-0000{epoch}.npz: it is not a regular file; trying the previous one"
                      for epoch in (4, 3)]
    checkpoint.save(tmp_path, model, Position(3), Config())
    assert checkpoint.restore(tmp_path, model, Config()).epoch == 3, "the pipe does not stop the run that goes on"


def test_a_compressed_checkpoint_cannot_fill_the_memory(tmp_path, capsys):
    model = network(1)
    whole = np.load(checkpoint.save(tmp_path, model, Position(2), Config()))
    with open(tmp_path / "epoch-00003.npz", "wb") as file:
        np.savez_compressed(file, **whole)
    assert checkpoint.restore(tmp_path, model, Config()).epoch == 2
    assert "epoch-00003.npz is damaged" in capsys.readouterr().out


def test_no_pickle_is_loaded(tmp_path):
    checkpoint.save(tmp_path, network(1), Position(1), Config())
    with open(tmp_path / "epoch-00002.npz", "wb") as file:
        np.savez(file, meta=np.array({"position": {"epoch": 9}}, dtype=object), v0000=np.zeros(1))
    assert checkpoint.restore(tmp_path, network(1), Config()).epoch == 1


def test_the_checkpoint_of_another_stack_is_refused_by_name(tmp_path):
    """Both generations of Keras have as many variables for this model, in another order."""
    model, other = network(1), 5 - keras_internals.GENERATION
    path = checkpoint.save(tmp_path, model, Position(1), Config())
    with np.load(path) as file:
        arrays = dict(file)
    meta = json.loads(str(arrays["meta"]))
    assert meta.pop("keras") == keras_internals.GENERATION
    for marked, saved_with in (({"keras": other}, other), ({}, 2)):  # Before there were two, it was not recorded.
        np.savez(path, **arrays | {"meta": np.array(json.dumps(meta | marked))})
        if saved_with == keras_internals.GENERATION:
            assert checkpoint.restore(tmp_path, model, Config()) == Position(1)
        else:
            with pytest.raises(LabError, match=f"saved with Keras {saved_with}.*resume it with the stack"):
                checkpoint.restore(tmp_path, model, Config())


def test_a_run_may_become_longer_but_not_another(tmp_path):
    checkpoint.save(tmp_path / "it/checkpoints", network(1), Position(1), Config())
    assert checkpoint.restore(tmp_path / "it/checkpoints", network(1), Config(epochs=9)).epoch == 1
    with pytest.raises(LabError, match=r"it was started with \{'base_lr': 0.1\}; resume it with these values"):
        checkpoint.restore(tmp_path / "it/checkpoints", network(1), Config(base_lr=0.2))
    with pytest.raises(LabError, match="holds another model"):
        checkpoint.restore(tmp_path / "it/checkpoints", network(1, units=5), Config())
