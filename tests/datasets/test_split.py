"""The split: per class, the same everywhere, and unmoved by what comes later."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labs.datasets.index import Index, index_folder
from labs.datasets.split import classes_not_held_out, split_images
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


def parts_of(tree, test_split, validation_split):
    """The part of each path, by name; a split that leaves a tiny class without training images is no case."""
    index = index_of(tree)
    try:
        division = split_images(index, test_split, validation_split, 1)
    except LabError:
        return None
    return {index.paths[position]: part for part, positions in enumerate(division) for position in positions}


@settings(max_examples=50)
@given(trees, trees, shares, shares)
def test_no_file_moves_when_others_are_added(tree, more, test_split, validation_split):
    grown = {name: tree.get(name, set()) | more.get(name, set()) for name in tree.keys() | more.keys()}
    before, after = (parts_of(each, test_split, validation_split) for each in (tree, grown))
    if before and after:
        assert before.keys() == set(index_of(tree).paths), "every image is in one part"
        assert before.items() <= after.items()


@given(
    st.integers(0, 50), st.integers(0, 5000), st.integers(40, 400), st.floats(0.1, 0.4), st.floats(0.1, 0.4),
    st.sampled_from(["001_{:04d}.jpg", "r_{}_100.jpg", "IMG{}.png", "{}", "v1_2_{}_9.jpg"]),
)
def test_shares_are_close_in_a_class_of_numbered_files(seed, first, count, tests, validation, pattern):
    ids = [pattern.format(number) for number in range(first, first + count)]
    division = split_images((ids, ["a"] * count), tests, validation, seed)
    assert abs(len(division.test) - tests * count) < 3
    assert abs(len(division.train) - (1 - tests) * (1 - validation) * count) < 3


def test_shares_are_close_for_names_without_numbers():
    letters = "abcdefghijklmnopqrstuvwxyz"
    ids = [a + b + c for a in letters for b in letters for c in letters]
    division = split_images((ids, np.zeros(len(ids))), 0.2, 0.25, 3)
    for part, share in ((division.test, 0.2), (division.validation, 0.2), (division.train, 0.6)):
        assert abs(len(part) / len(ids) - share) < 0.01


def test_real_classes_get_their_shares(caltech):
    index = index_folder(caltech)
    for seed in range(5):
        division = split_images(index, 0.2, 0.25, seed)
        counts = np.bincount(index.labels)
        for part, share in ((division.test, 0.2), (division.validation, 0.2), (division.train, 0.6)):
            assert np.abs(np.bincount(index.labels[part], minlength=21) - share * counts).max() < 3
        assert classes_not_held_out(division, index) == ""


def test_validation_share_does_not_move_the_test_part(caltech):
    index = index_folder(caltech)
    assert np.array_equal(split_images(index, 0.2, 0.1, 1).test, split_images(index, 0.2, 0.5, 1).test)
    assert not np.array_equal(split_images(index, 0.2, 0.1, 1).test, split_images(index, 0.2, 0.1, 2).test)


def test_the_split_is_what_it_was():
    """Whoever changes the rule moves images between the parts of everybody's runs."""
    ids = [f"001_{number:04d}.jpg" for number in range(1, 21)]
    division = split_images((ids, ["001.ak47"] * 20), 0.2, 0.25, 1)
    assert (division.test.tolist(), division.validation.tolist()) == ([3, 11, 16, 19], [0, 5, 8, 13, 18])


def test_a_class_without_training_images_is_an_error():
    tree = {"a": {f"{n}.jpg" for n in range(100)}, "b": {"1.jpg", "2.jpg"}}
    with pytest.raises(LabError, match=r"class b is left without training images; add some or lower"):
        split_images(index_of(tree), 0.9, 0.5, 1)


@pytest.mark.parametrize(("share", "says"), [
    (1e-9, r"test_split 1e-09 holds out none of 2 images"), (1, "is not a fraction"), (-0.1, "is not a fraction")])
def test_shares_that_make_no_sense(share, says):
    with pytest.raises(LabError, match=says):
        split_images((["1", "2"], [0, 0]), share, 0, 1)


def test_small_classes_without_test_images_are_named():
    index = index_of({"a": {f"{n}.jpg" for n in range(100)}, "b": {"3.jpg"}})
    line = classes_not_held_out(split_images(index, 0.2, 0.2, seed=1), index)
    assert line == "no validation image of 1 (b); no test image of 1 (b)"
