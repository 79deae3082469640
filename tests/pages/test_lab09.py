"""Page 9's trees: more test images of the same fruits, and a test set with copies that the leak check finds."""

import pytest

from labs.datasets import duplicates, synthetic
from labs.datasets.index import in_test, index_train_and_test
from labs.pages import lab09


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_DATA", str(tmp_path))
    monkeypatch.setattr(lab09, "TESTS", 22)
    monkeypatch.setattr(synthetic, "FRUITS360", dict(list(synthetic.FRUITS360.items())[:2]))


def subsets(root):
    index = index_train_and_test(root)
    return [[path for path, is_test in zip(index.paths, in_test(index), strict=True) if is_test == wanted]
            for wanted in (False, True)]


def test_the_large_tree_has_the_embedded_images_and_more_of_them(tmp_path):
    train, test = subsets(large := lab09.large_tree())
    assert (len(train), len(test)) == (120, 44)
    synthetic.fruits360(embedded := tmp_path / "embedded")
    for path in embedded.rglob("*.jpg"):
        assert (large / path.relative_to(embedded)).read_bytes() == path.read_bytes()
    assert lab09.large_tree() == large, "it is made once"


def test_the_leak_check_names_all_copies():
    train, test = subsets(root := lab09.leaky_tree())
    copies = {path for path in test if int(path.rpartition("/")[2].partition("_")[0]) >= 100}
    assert len(copies) == 80 == 2 * len(test) / 3
    leak = duplicates.find_test_leakage(root, train, test)
    assert not leak.identical
    assert len(copies - {path for path, _ in leak.alike}) <= 1, "the hash of a copy may differ in three bits"
    assert leak.serious
