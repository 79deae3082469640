"""The shard: equal steps, every image once, the global batch in charge, exact weights."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.datasets.sharding import coverage, shard, steps_per_epoch
from labs.run.errors import LabError

small, digits = st.integers(1, 8), st.integers(0, 9)
cases = st.tuples(st.integers(1, 300), st.integers(1, 40), small, digits, digits)


def shards(n, batch_size, size, epoch=0, seed=1, **more):
    return [shard(n, batch_size, rank, size, epoch, seed, **more) for rank in range(size)]


@given(cases)
def test_every_image_is_used_once_in_equal_steps(case):
    n, batch_size, size, epoch, seed = case
    all_ = shards(n, batch_size, size, epoch, seed)
    assert {each.rows.shape for each in all_} == {(steps_per_epoch(n, batch_size, size), batch_size)}
    used = np.concatenate([each.rows[each.weights > 0] for each in all_])
    assert sorted(used) == list(range(n))
    padding = [np.sum(each.weights[-1] == 0) for each in all_]
    assert max(padding) - min(padding) <= 1, "spread evenly over the workers"
    assert coverage(all_, n).startswith(f"epoch {epoch + 1}: {n} of {n} training images used once")


@given(cases)
def test_weighted_means_over_workers_are_the_mean_over_the_images_of_the_step(case):
    n, batch_size, size, epoch, seed = case
    loss = np.random.default_rng(seed).random(n)
    all_ = shards(n, batch_size, size, epoch, seed)
    for step in range(all_[0].steps):
        means = [np.mean(each.weights[step] * loss[each.rows[step]]) for each in all_]
        images = np.concatenate([each.rows[step][each.weights[step] > 0] for each in all_])
        assert np.mean(means) == pytest.approx(loss[images].mean(), rel=1e-5)
        assert np.mean([each.weights[step] for each in all_]) == pytest.approx(1, rel=1e-6)


def test_an_example_by_hand():
    """Five images in order, two workers of batch 2: the fifth is alone in the second step and counts four."""
    first, second = shards(5, 2, 2, shuffle=False)
    assert (first.rows.tolist(), second.rows.tolist()) == ([[0, 2], [4, 1]], [[1, 3], [0, 2]])
    assert (first.weights.tolist(), second.weights.tolist()) == ([[1, 1], [4, 0]], [[1, 1], [0, 0]])
    assert first.weights.dtype == np.float32


def test_coverage_finds_what_is_wrong():
    good = shards(100, 10, 2)
    for second, says in ((good[0], "50 of 100 training images used, in 100 draws"),  # Each believes it is rank 0.
                         (shard(100, 10, 1, 2, 0, seed=2), "of 100 training images used, in 100 draws"),
                         (shard(101, 10, 1, 2, 0, 1), r"the workers take \[5, 6\] steps"),
                         (shard(100, 10, 1, 2, 1, 1), "the workers take"),  # An epoch ahead.
                         (dataclasses.replace(good[1], weights=good[1].weights * 2), "do not average 1")):
        with pytest.raises(LabError, match=says):
            coverage([good[0], second], 100)
