"""Batches: the right pictures, labels and weights, varied alike for any number of workers."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from labs.datasets import pipeline
from labs.datasets.arrays import aligned, is_aligned
from labs.datasets.augment import Augment, flip_and_shift, matrices, random_params
from labs.datasets.image_cache import ImageCache
from labs.datasets.index import index_folder
from labs.datasets.pipeline import AHEAD, _transformed, eval_batches, lab_error, train_batches
from labs.datasets.sharding import shard
from labs.datasets.splits import Subset

RANDOM = np.random.default_rng(0)
DIGITS = RANDOM.integers(0, 256, (50, 9, 7, 1), np.uint8)
LABELS = RANDOM.integers(0, 10, 50)


class Recorded:
    """An array that remembers which rows were asked for."""

    def __init__(self, array):
        self.array, self.shape, self.dtype, self.requested = array, array.shape, array.dtype, []

    def __len__(self):
        return len(self.array)

    def __getitem__(self, rows):
        self.requested.append(rows)
        return self.array[rows]


def batches(dataset):
    return list(dataset.as_numpy_iterator())


def test_batches_hold_what_the_shard_says():
    mine = shard(50, 8, 1, 2, 0, 1)
    dataset = train_batches(DIGITS, LABELS, mine, epoch=0, seed=1)
    assert dataset.element_spec == (
        tf.TensorSpec([8, 9, 7, 1], tf.uint8), tf.TensorSpec([8], tf.int64), tf.TensorSpec([8], tf.float32),
    )  # fmt: skip
    outcome = batches(dataset)
    assert len(outcome) == mine.steps == dataset.cardinality()
    for step, (x, y, weight) in enumerate(outcome):
        assert np.array_equal(x, DIGITS[mine.rows[step]])
        assert np.array_equal(y, LABELS[mine.rows[step]])
        assert np.array_equal(weight, mine.weights[step])


def equal(ones, others):
    return all(np.array_equal(a, b) for one, other in zip(ones, others, strict=True)
               for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("augment", [None, Augment(), Augment(rotation=20, zoom=0.2)])
def test_what_tensorflow_takes_from_memory_is_what_python_takes(augment):
    mine = shard(50, 8, 1, 2, 0, 1)
    assert equal(*(batches(train_batches(images, LABELS, mine, augment, epoch=0, seed=1))
                   for images in (aligned(DIGITS), Recorded(DIGITS))))
    assert equal(*(batches(eval_batches(images, LABELS, mine.rows[0], 3))
                   for images in (aligned(DIGITS), Recorded(DIGITS))))


@pytest.mark.parametrize("start", [0, 1, 16, 63])
def test_pictures_that_lie_anywhere_are_read_right(start):
    memory = np.empty(DIGITS.nbytes + 128, np.uint8)
    images = memory[start : start + DIGITS.nbytes].reshape(DIGITS.shape)
    images[...] = DIGITS
    read_only = DIGITS.copy()
    read_only.flags.writeable = False
    mine = shard(50, 50, 0, 1, 0, 1)
    for each in (images, read_only, Subset(images, LABELS, np.arange(50)).images):
        assert np.array_equal(batches(train_batches(each, LABELS, mine, epoch=0, seed=1))[0][0], DIGITS[mine.rows[0]])
    assert is_aligned(Subset(images, LABELS, np.arange(50)).images)
    assert is_aligned(Subset(read_only, LABELS, np.arange(50)).images)


def test_no_picture_is_read_too_early_or_in_vain():
    images = Recorded(DIGITS)
    iterator = iter(train_batches(images, LABELS, shard(50, 2, 0, 1, 0, 1), epoch=0, seed=1))
    next(iterator)
    assert len(images.requested) <= 1 + AHEAD + 1
    assert len(list(iterator)) == 24
    assert len(images.requested) == 25


@pytest.mark.parametrize("augment", [None, Augment(), Augment(rotation=20, zoom=0.2)])
def test_one_worker_and_two_train_on_the_same_pictures(augment):
    def pictures(batch_size, size, epoch):
        shards = [shard(50, batch_size, rank, size, epoch, 3) for rank in range(size)]
        parts = (train_batches(DIGITS, LABELS, each, augment, epoch=epoch, seed=3) for each in shards)
        steps = zip(*map(batches, parts), strict=True)
        return [sorted(x.tobytes() for part in step for x in part[0]) for step in steps]

    assert pictures(16, 1, 0) == pictures(8, 2, 0) == pictures(4, 4, 0)
    assert pictures(16, 1, 0) != pictures(16, 1, 1)


@pytest.mark.parametrize("augment", [Augment(), Augment(rotation=20)])
def test_variation_changes_with_epoch_and_seed_and_comes_again(augment):
    mine = shard(50, 50, 0, 1, 0, 1)
    first, again, later, other = (
        batches(train_batches(DIGITS, LABELS, mine, augment, epoch=epoch, seed=seed))[0][0]
        for epoch, seed in ((0, 1), (0, 1), (1, 1), (0, 2))
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, later)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("augment", [Augment(), Augment(rotation=20)])
def test_an_epoch_leaves_nothing_behind(augment, monkeypatch):
    arrays = []

    def noted(*arguments):
        array = random_params(*arguments)
        arrays.append(weakref.ref(array))
        return array

    monkeypatch.setattr(pipeline, "random_params", noted)
    assert batches(train_batches(DIGITS, LABELS, shard(50, 8, 0, 1, 0, 1), augment, epoch=0, seed=1))
    gc.collect()
    assert [array() for array in arrays] == [None]


def test_going_on_in_the_middle_of_an_epoch():
    mine = shard(50, 4, 0, 2, 2, 1)
    whole = batches(train_batches(DIGITS, LABELS, mine, Augment(), epoch=2, seed=1))
    rest = batches(train_batches(DIGITS, LABELS, mine, Augment(), epoch=2, seed=1, first_step=3))
    assert equal(whole[3:], rest)


def test_judged_pictures_are_whole_in_order_and_not_varied():
    positions = np.arange(1, 50, 3)
    dataset = eval_batches(DIGITS, LABELS, positions, 5)
    outcome = batches(dataset)
    assert [len(x) for x, _ in outcome] == [5, 5, 5, 2]
    assert dataset.element_spec[0].shape.as_list() == [None, 9, 7, 1]
    assert np.array_equal(np.concatenate([x for x, _ in outcome]), DIGITS[positions])
    assert np.array_equal(np.concatenate([y for _, y in outcome]), LABELS[positions])
    assert batches(eval_batches(DIGITS, LABELS, positions[:0], 5)) == []


def test_a_picture_that_breaks_during_training_is_named(tree):
    index = index_folder(tree({"a": 4, "b": 4}))
    images = ImageCache(index.root, index.paths, 8)
    (index.root / "b" / "0002.png").write_text("broken")
    with pytest.raises(tf.errors.OpError) as raised:
        batches(train_batches(images, index.labels, shard(8, 4, 0, 1, 0, 1), epoch=0, seed=1))
    outcome = lab_error(raised.value)
    assert str(outcome).endswith("b/0002.png (not an image); repair or remove the file, then start again")
    assert lab_error(tf.errors.InvalidArgumentError(None, None, "loss")) is None


shapes = st.tuples(st.integers(1, 6), st.integers(2, 12), st.integers(2, 12), st.sampled_from([1, 3]))


@given(shapes, st.floats(0, 0.6), st.booleans(), st.integers(0, 99))
def test_flip_and_shift_by_the_definition(shape, shift, flip, seed):
    images = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    params = random_params(shape[0], seed, 0)
    varied = flip_and_shift(images, params, Augment(flip=flip, shift=shift))
    y, x = np.arange(shape[1]), np.arange(shape[2])
    for image, param, result in zip(images, params, varied, strict=True):
        mirrored = image[:, ::-1] if flip and param[0] < 0 else image
        rows = np.clip(y + int(np.rint(param[1] * shift * shape[1])), 0, shape[1] - 1)
        columns = np.clip(x + int(np.rint(param[2] * shift * shape[2])), 0, shape[2] - 1)
        assert np.array_equal(result, mirrored[rows][:, columns])


@settings(max_examples=20)
@given(st.floats(0, 0.3), st.integers(0, 99))
def test_transforming_by_nothing_is_flip_and_shift(shift, seed):
    params, augment = random_params(50, seed, 0), Augment(shift=shift, rotation=1e-9)
    turned = _transformed(tf.constant(DIGITS), matrices(params, augment, 9, 7))
    assert np.array_equal(turned, flip_and_shift(DIGITS, params, augment))


def test_a_quarter_turn_and_a_zoom():
    square = RANDOM.integers(0, 256, (1, 8, 8, 1), np.uint8)
    params = np.array([[1, 0, 0, 1, 1]], np.float32)
    turned = _transformed(tf.constant(square), matrices(params, Augment(shift=0, rotation=90), 8, 8))
    assert np.abs(turned.numpy().astype(int) - np.rot90(square, axes=(1, 2))).max() <= 1
    smooth = np.broadcast_to(np.linspace(100, 150, 8, dtype=np.float32)[:, None, None], (1, 8, 8, 1))
    smaller = _transformed(tf.constant(smooth), matrices(params, Augment(shift=0, zoom=0.5), 8, 8)).numpy()
    assert smaller[0, 4, 4, 0] - smaller[0, 3, 4, 0] == pytest.approx(1.5 * 50 / 7, rel=1e-3)
