"""A full disk, wherever it strikes, leaves the last checkpoint; a damaged checkpoint is never trained on."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import resource
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from labs.run.errors import explain_os_error
from labs.training import checkpoint
from labs.training.checkpoint import Position

IDENTITY = {"data": {}, "settings": {}}


@dataclasses.dataclass(frozen=True)
class Config:
    epochs: int = 3


@pytest.fixture(scope="module")
def model() -> tf.keras.Model:
    layers = tf.keras.layers
    # More than the 4096 bytes that zipfile reads at once: what it has read to the end, it has compared with its CRC.
    network = tf.keras.Sequential([layers.Input((40,)), layers.Dense(40)])
    network.compile(tf.keras.optimizers.SGD(), "mse")
    network.optimizer.build(network.trainable_variables)
    return network


def fill(model: tf.keras.Model, value: float) -> None:
    """Set all that a checkpoint holds to a value that tells which checkpoint it is."""
    for variable in [*model.variables, *model.optimizer.variables]:
        variable.assign(tf.fill(variable.shape, tf.cast(value, variable.dtype)))


def save(folder, model: tf.keras.Model, epoch: int):
    fill(model, epoch)
    return checkpoint.save(folder, model, Position(epoch), Config(), IDENTITY)


def restored(folder, model: tf.keras.Model) -> int:
    """Return the epoch of the checkpoint that is taken, when all values are that one's."""
    fill(model, -1)
    epoch = checkpoint.restore(folder, model, Config(), IDENTITY).epoch
    for variable in [*model.variables, *model.optimizer.variables]:
        assert (variable.numpy() == epoch).all(), variable.name
    return epoch


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
    for size in range(0, len(whole), 61):
        with room_for(size), pytest.raises(OSError, match="File too large") as caught:
            save(tmp_path, model, 2)
        assert str(explain_os_error(caught.value)).startswith(f"cannot write {tmp_path}/epoch-00002.npz: ")
        assert os.listdir(tmp_path) == [old.name]
        assert old.read_bytes() == whole
    assert restored(tmp_path, model) == 1
    with room_for(2 * len(whole)):
        save(tmp_path, model, 2)
    assert restored(tmp_path, model) == 2


def sections(path) -> dict[str, range]:
    """Return where in a checkpoint which part lies."""
    size = path.stat().st_size
    with zipfile.ZipFile(path) as file:
        members = file.infolist()
        directory = file.start_dir
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
        every = 1 if part in ("header of v0000.npy", "shape of v0000.npy", "directory") else 61
        for offset, flip in itertools.product(where[::every], (1, 6)):
            newest.write_bytes(whole[:offset] + bytes([whole[offset] ^ flip]) + whole[offset + 1 :])
            taken = restored(tmp_path, model)
            assert ("is damaged" in capsys.readouterr().out) == (taken == 1), (part, offset, flip)
            assert taken == 1 or part.startswith(("header of", "directory", "end")), (part, offset, flip)
    for length in range(0, len(whole), 83):
        newest.write_bytes(whole[:length])
        assert restored(tmp_path, model) == 1, f"cut off after {length} bytes"


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
    assert restored(tmp_path, model) == 1
    assert "epoch-00002.npz is damaged; trying the previous one" in capsys.readouterr().out
    assert not (tmp_path / "sprung").exists()
