"""The split: per class, the same everywhere, and unmoved by what comes later."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labs.datasets import splits
from labs.datasets.index import Index
from labs.datasets.splits import split_images
from labs.run.errors import LabError

shares = st.floats(0, 0.6)
patterns = st.sampled_from(["001_{:04d}.jpg", "{}.png", "r_{}_100.jpg", "é b{}c.gif", "{:x}.jpg"])
numbers = st.sets(st.integers(0, 10**6), min_size=6, max_size=12)
files = st.builds(lambda pattern, some: {pattern.format(number) for number in some}, patterns, numbers)
trees = st.dictionaries(st.sampled_from("abcd"), files, min_size=2, max_size=3)


def index_of(tree):
    """An index as `index_folder` would make it, without files."""
    classes = tuple(sorted(tree))
    paths = [f"{name}/{file}" for name in classes for file in sorted(tree[name])]
    labels = [label for label, name in enumerate(classes) for _ in tree[name]]
    return Index(Path("/tree"), classes, paths, np.array(labels), {})


def one_class(names):
    return Index(Path("/tree"), ("001.ak47",), list(names), np.zeros(len(names), np.int64), {})


def subsets_of(tree, test_split, validation_split):
    """The subset of each path; None for a split that leaves a tiny class without training images."""
    index = index_of(tree)
    try:
        split = split_images(index, test_split, validation_split, 1)
    except LabError:
        return None
    return {index.paths[position]: subset for subset, positions in enumerate(split) for position in positions}


@settings(max_examples=50)
@given(trees, trees, shares, shares)
def test_no_file_moves_when_others_are_added(tree, more, test_split, validation_split):
    grown = {name: tree.get(name, set()) | more.get(name, set()) for name in tree.keys() | more.keys()}
    before, after = (subsets_of(each, test_split, validation_split) for each in (tree, grown))
    if before and after:
        assert before.keys() == set(index_of(tree).paths), "every image is in one subset"
        assert before.items() <= after.items()


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


@pytest.mark.parametrize(("share", "says"), [
    (0.9, r"class b is left without training images; add some or lower"),
    (1e-9, r"test_split 1e-09 holds out none of 102 images")])
def test_shares_that_make_no_sense(share, says):
    index = index_of({"a": {f"{n}.jpg" for n in range(100)}, "b": {"1.jpg", "2.jpg"}})
    with pytest.raises(LabError, match=says):
        split_images(index, share, 0.5 if share == 0.9 else 0, 1)


def test_small_classes_without_held_out_images_are_named(tree):
    description = splits.from_folder(tree({"a": 60, "b": 1}), 16, 0.2, 0.2, seed=1).description
    assert description.endswith("no validation image of b\nno test image of b")
