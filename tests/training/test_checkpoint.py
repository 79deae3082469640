"""Checkpoints come back as they were, or not at all: also from a full disk, damaged, or with a pickle inside."""

import contextlib
import dataclasses
import itertools
import os
import resource
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from labs.run.errors import LabError, explain_os_error
from labs.training import checkpoint
from labs.training.checkpoint import Position

IDENTITY = {"data": {}, "settings": {}}


@dataclasses.dataclass(frozen=True)
class Config:
    epochs: int = 3
    base_lr: float = 0.1


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


def restored(folder, model: tf.keras.Model, config=Config()) -> Position:
    """Return the position of the checkpoint that is taken, when all values are that one's."""
    fill(model, -1)
    position = checkpoint.restore(folder, model, config, IDENTITY)
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


def test_a_run_may_become_longer_but_not_another(tmp_path, model):
    save(folder := tmp_path / "it/checkpoints", model, 1)
    assert restored(folder, model, Config(epochs=9)).epoch == 1
    with pytest.raises(LabError, match=r"'it' was started with --base-lr 0.1, not 0.2; omit what differs"):
        restored(folder, model, Config(base_lr=0.2))
    with pytest.raises(LabError, match="holds another model"):
        restored(folder, network(units=5))


@contextlib.contextmanager
def room_for(size: int):
    """Limit the size of files: a write beyond fails as on a full disk, on any machine."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # zipfile, of a file that is closed.
def test_a_disk_that_is_full_at_any_byte_leaves_the_last_checkpoint(tmp_path, model):
    old = save(tmp_path, model, 1)
    whole = old.read_bytes()
    for size in range(0, len(whole), 199):
        with room_for(size), pytest.raises(OSError, match="File too large") as caught:
            save(tmp_path, model, 2)
        assert str(explain_os_error(caught.value)).startswith(f"cannot write {tmp_path}/epoch-00002.npz: ")
        assert os.listdir(tmp_path) == [old.name]
    assert restored(tmp_path, model).epoch == 1


def sections(path) -> dict[str, range]:
    """Return where in a checkpoint which part lies."""
    size = path.stat().st_size
    with zipfile.ZipFile(path) as file:
        members, directory = file.infolist(), file.start_dir
    result = {}
    for member, end in zip(members, [*(each.header_offset for each in members[1:]), directory], strict=True):
        data = end - member.file_size
        result |= {f"header of {member.filename}": range(member.header_offset, data),
                   f"shape of {member.filename}": range(data, data + 128),
                   f"data of {member.filename}": range(data + 128, end)}
    return result | {"directory": range(directory, size - 22), "end": range(size - 22, size)}


@pytest.mark.slow
def test_a_flipped_byte_anywhere_is_found_or_changes_nothing(tmp_path, model, capsys):
    """Every byte that says how the weights lie in the file, and every n-th of all others.

    6 makes of "<f4" a "<f2", whose numbers are others and half as many bytes.
    """
    save(tmp_path, model, 1)
    newest = save(tmp_path, model, 2)
    whole = newest.read_bytes()
    for part, where in sections(newest).items():
        every = 1 if part in ("header of v0000.npy", "shape of v0000.npy", "directory") else 127
        for offset, flip in itertools.product(where[::every], (1, 6)):
            newest.write_bytes(whole[:offset] + bytes([whole[offset] ^ flip]) + whole[offset + 1 :])
            taken = restored(tmp_path, model).epoch
            assert ("is damaged" in capsys.readouterr().out) == (taken == 1), (part, offset, flip)
            assert taken == 1 or part.startswith(("header of", "directory", "end")), (part, offset, flip)
    for length in range(0, len(whole), 199):
        newest.write_bytes(whole[:length])
        assert restored(tmp_path, model).epoch == 1, f"cut off after {length} bytes"


class Trap:
    """Springs when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["meta", "v0000"])
def test_a_pickle_in_a_checkpoint_is_not_opened(tmp_path, model, capsys, name):
    save(tmp_path, model, 1)
    with np.load(save(tmp_path, model, 2)) as file:
        parts = dict(file)
    np.savez(tmp_path / "epoch-00002.npz", **parts | {name: np.array([Trap(tmp_path / "sprung")], object)})
    assert restored(tmp_path, model).epoch == 1
    assert "epoch-00002.npz is damaged; trying the previous one" in capsys.readouterr().out
    assert not (tmp_path / "sprung").exists()
