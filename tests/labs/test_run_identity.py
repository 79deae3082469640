"""An interrupted run goes on only with what it began with: its data, its settings, its number of workers."""

import dataclasses
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labs import lab10_caltech as lab
from labs.datasets import splits
from labs.run.errors import LabError
from labs.run.fields import Options

CONFIG = lab.Config(data="rgb", image_size=16, batch_size=8, epochs=2, warmup_epochs=0)
RESUME = Options("it", Path("results"), resume=True)


def picture(path: Path, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 24, 3), np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A folder with pictures, and a run of two epochs on them that ended before its record was written."""
    home = tmp_path_factory.mktemp("interrupted")
    for code, name in enumerate(("cat", "dog")):
        (home / "rgb" / name).mkdir(parents=True)
        for number in range(20):
            picture(home / f"rgb/{name}/{number:02d}.bmp", 100 * code + number)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        record = lab.run(CONFIG, dataclasses.replace(RESUME, resume=False))
    (home / "results/lab10_caltech/it/record.json").unlink()
    return home, record


@pytest.fixture
def here(interrupted, tmp_path, monkeypatch):
    """A copy of that folder, as the working folder: --data is relative."""
    shutil.copytree(interrupted[0], tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def removed(here):
    for path in sorted(here.glob("rgb/*/*"))[::2]:
        path.unlink()


def change_first(subset, change):
    """Return a change of the first image of a subset."""
    def apply(here):
        read = splits.from_folder(here / "rgb", 16, CONFIG.test_split, CONFIG.validation_split, CONFIG.seed)
        change(here / "rgb" / read.train.images.paths[getattr(read, subset).positions[0]])

    return apply


@pytest.mark.parametrize(("change", "config", "cause"), [
    (removed, {}, "the data has changed since 'it' saved epoch-00002.npz"),
    (change_first("test", Path.unlink), {}, "the data has changed since 'it' saved"),
    (lambda here: picture(here / "rgb/cat/07.bmp", 999), {}, "the data has changed since 'it' saved"),
    (change_first("train", lambda path: path.rename(path.with_suffix(".jpg"))), {}, "the data has changed since 'it'"),
    (lambda here: os.environ.update(ONEDNN_DEFAULT_FPMATH_MODE="BF16"), {},
     "was started with ONEDNN_DEFAULT_FPMATH_MODE None, not BF16; resume it with the earlier"),
    (None, {"base_lr": 0.5}, "was started with --base-lr 0.03, not 0.5"),
    (None, {"epochs": 1}, "run 'it' has begun epoch 2; resume it with --epochs 2 or more"),
])
def test_a_run_does_not_go_on_with_anything_else(here, change, config, cause):
    if change:
        change(here)
    with pytest.raises(LabError, match=cause):
        lab.run(dataclasses.replace(CONFIG, **config), RESUME)


def test_it_goes_on_with_the_same_and_its_record_says_on_what(here, interrupted):
    for path in here.glob("rgb/*/*"):  # As on another node: the same files, copied later.
        path.touch()
    record = lab.run(CONFIG, RESUME)
    assert record["data"] == interrupted[1]["data"]
    assert set(record["data"]) == {"train", "validation", "test"}
