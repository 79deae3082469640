"""Page 9's test set with copies, which the leak check finds."""

from labs.datasets import synthetic
from labs.datasets.index import in_test, index_train_and_test
from labs.pages import lab09
from tests.datasets.test_duplicates import find_leakage


def test_the_leak_check_names_all_copies(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_DATA", str(tmp_path))
    monkeypatch.setattr(synthetic, "FRUITS360", dict(list(synthetic.FRUITS360.items())[:2]))
    index = index_train_and_test(root := lab09.leaky_tree())
    test = [path for path, is_test in zip(index.paths, in_test(index), strict=True) if is_test]
    copies = {path for path in test if int(path.rpartition("/")[2].partition("_")[0]) >= 100}
    assert len(copies) == 80 == 2 * len(test) / 3
    leak = find_leakage(root)
    assert not leak.identical
    assert len(copies - {path for path, _ in leak.alike}) <= 1, "the hash of a copy may differ in three bits"
    assert leak.serious
