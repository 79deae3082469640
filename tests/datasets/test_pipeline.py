"""Batches: the right images, labels and weights, augmented alike for any number of workers."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from labs.datasets.pipeline import Augment, eval_batches, flip_and_shift, random_params, train_batches
from labs.datasets.sharding import shard
from labs.datasets.splits import Subset

RANDOM = np.random.default_rng(0)
DIGITS = RANDOM.integers(0, 256, (50, 9, 7, 1), np.uint8)
LABELS = RANDOM.integers(0, 10, 50)


def batches(dataset):
    return list(dataset.as_numpy_iterator())


def equal(ones, others):
    return all(np.array_equal(a, b) for one, other in zip(ones, others, strict=True)
               for a, b in zip(one, other, strict=True))


def test_batches_hold_what_the_shard_says_wherever_the_images_lie():
    unaligned = np.empty(DIGITS.nbytes + 1, np.uint8)[1:].reshape(DIGITS.shape)
    unaligned[...] = DIGITS
    mine, rest = shard(50, 8, 1, 2, 0, 1), np.arange(1, 50, 3)
    for images in (unaligned, Subset(unaligned, LABELS, np.arange(50)).images):
        dataset = train_batches(images, LABELS, mine, epoch=0, seed=1)
        assert dataset.element_spec == (tf.TensorSpec([8, 9, 7, 1], tf.uint8), tf.TensorSpec([8], tf.int64),
                                        tf.TensorSpec([8], tf.float32))
        expected = [(DIGITS[rows], LABELS[rows], mine.weights[step]) for step, rows in enumerate(mine.rows)]
        assert equal(batches(dataset), expected)
        outcome = batches(eval_batches(images, LABELS, rest, 5))
        assert [len(x) for x, _ in outcome] == [5, 5, 5, 2]
        assert equal([map(np.concatenate, zip(*outcome, strict=True))], [(DIGITS[rest], LABELS[rest])])
    assert batches(eval_batches(DIGITS, LABELS, rest[:0], 5)) == []


@pytest.mark.parametrize("augment", [None, Augment()])
def test_one_worker_and_four_train_on_the_same_images(augment):
    def images(batch_size, size, epoch):
        shards = [shard(50, batch_size, rank, size, epoch, 3) for rank in range(size)]
        workers = (train_batches(DIGITS, LABELS, each, augment, epoch=epoch, seed=3) for each in shards)
        steps = zip(*map(batches, workers), strict=True)
        return [sorted(x.tobytes() for batch in step for x in batch[0]) for step in steps]

    assert images(16, 1, 0) == images(8, 2, 0) == images(4, 4, 0)
    assert images(16, 1, 0) != images(16, 1, 1)


def test_augmentation_depends_on_epoch_and_seed_and_can_be_resumed():
    mine = shard(50, 4, 0, 2, 2, 1)
    first, again, later, other = (batches(train_batches(DIGITS, LABELS, mine, Augment(), epoch=epoch, seed=seed))
                                  for epoch, seed in ((2, 1), (2, 1), (3, 1), (2, 2)))
    assert equal(first, again)
    assert not equal(first, later)
    assert not equal(first, other)
    assert equal(first[3:], batches(train_batches(DIGITS, LABELS, mine, Augment(), epoch=2, seed=1, first_step=3)))


shapes = st.tuples(st.integers(1, 6), st.integers(2, 12), st.integers(2, 12), st.sampled_from([1, 3]))


@given(shapes, st.floats(0, 0.6), st.booleans(), st.integers(0, 99))
def test_flip_and_shift_by_the_definition(shape, shift, flip, seed):
    images = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    params = random_params(shape[0], seed, 0)
    augmented = flip_and_shift(images, params, Augment(flip=flip, shift=shift))
    y, x = np.arange(shape[1]), np.arange(shape[2])
    for image, param, result in zip(images, params, augmented, strict=True):
        mirrored = image[:, ::-1] if flip and param[0] < 0 else image
        rows = np.clip(y + int(np.rint(param[1] * shift * shape[1])), 0, shape[1] - 1)
        columns = np.clip(x + int(np.rint(param[2] * shift * shape[2])), 0, shape[2] - 1)
        assert np.array_equal(result, mirrored[rows][:, columns])
