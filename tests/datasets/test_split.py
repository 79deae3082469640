"""The split: per class, and the same everywhere. Page 10 shows that new files move no others."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.datasets import splits
from labs.datasets.index import Index
from labs.datasets.splits import split_images
from labs.run.errors import LabError


def one_class(names):
    return Index(Path("/tree"), ("001.ak47",), list(names), np.zeros(len(names), np.int64), [])


@given(
    st.integers(0, 50), st.integers(0, 5000), st.integers(40, 400), st.floats(0.1, 0.4), st.floats(0.1, 0.4),
    st.sampled_from(["001_{:04d}.jpg", "r_{}_100.jpg", "IMG{}.png", "{}", "v1_2_{}_9.jpg"]),
)
def test_shares_are_close_in_a_class_of_numbered_files(seed, first, count, tests, validation, pattern):
    names = one_class([pattern.format(number) for number in range(first, first + count)])
    split = split_images(names, tests, validation, seed)
    assert abs(len(split.test) - tests * count) < 3
    assert abs(len(split.train) - (1 - tests) * (1 - validation) * count) < 3
    assert np.array_equal(split.test, split_images(names, tests, validation / 2, seed).test), "the test stays"


def test_the_split_is_what_it_was():
    """Whoever changes the rule moves images between the subsets of everybody's runs."""
    split = split_images(one_class([f"001_{number:04d}.jpg" for number in range(1, 21)]), 0.2, 0.25, 1)
    assert (split.test.tolist(), split.validation.tolist()) == ([3, 11, 16, 19], [0, 5, 8, 13, 18])


def test_shares_that_make_no_sense():
    labels = np.repeat([0, 1], [100, 2])
    index = Index(Path("/tree"), ("a", "b"), [f"{n}.jpg" for n in range(102)], labels, [])
    for shares_, says in (((0.9, 0.5), "class b is left without training images; add some or lower"),
                          ((1e-9, 0), "test_split 1e-09 holds out none of 102 images")):
        with pytest.raises(LabError, match=says):
            split_images(index, *shares_, 1)


def test_small_classes_without_held_out_images_are_named(tree):
    description = splits.from_folder(tree({"a": 60, "b": 1}), 16, 0.2, 0.2, seed=1).description
    assert description.endswith("no validation image of b\nno test image of b")
