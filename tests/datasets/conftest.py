import tempfile

import numpy as np
import pytest
from hypothesis import settings
from PIL import Image

settings.register_profile("labs", deadline=None)  # A slow machine is no failure.
settings.load_profile("labs")


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("tmp")))


@pytest.fixture
def tree(tmp_path):
    """Make a tree of small pictures: tree({"cat": 3, "dog": 2}) has cat/0001.png to dog/0002.png."""

    def make(counts, size=(12, 10), root=tmp_path / "tree"):
        random = np.random.default_rng(0)
        for name, count in counts.items():
            (root / name).mkdir(parents=True)
            for number in range(1, count + 1):
                pixels = random.integers(0, 256, (size[1], size[0], 3), np.uint8)
                Image.fromarray(pixels).save(root / name / f"{number:04d}.png")
        return root

    return make
