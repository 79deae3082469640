"""The programs of setup/ are not a package: tests import them from their folder, as they import each other."""

import sys

import pytest

from tests.setup.clone import ROOT, Clone

sys.path.insert(0, str(ROOT / "setup"))


@pytest.fixture
def clone(tmp_path) -> Clone:
    folder = tmp_path / "clone"
    folder.mkdir()
    return Clone(folder)
