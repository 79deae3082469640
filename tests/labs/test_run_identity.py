"""An interrupted run goes on only with what it began with: its data, its settings, its number of workers."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labs import lab10_caltech as lab
from labs.datasets import registry, splits
from labs.run import catalogue
from labs.run.errors import LabError
from labs.run.options import Options
from labs.run.paths import ROOT

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


def removed(here, _):
    for path in sorted(here.glob("rgb/*/*"))[::2]:
        path.unlink()


def first(subset, change):
    """Return a change of the first image of a subset."""
    def apply(here, _):
        read = splits.from_folder(here / "rgb", 16, CONFIG.test_split, CONFIG.validation_split, CONFIG.seed)
        change(here / "rgb" / read.train.images.paths[getattr(read, subset).positions[0]])

    return apply


def renamed(path):
    """The same picture under another name: the stem decides on the subset."""
    path.rename(path.with_suffix(".jpg"))


def replaced(here, _):
    """Another picture, of as many bytes."""
    picture(here / "rgb/cat/07.bmp", 999)


def settings(here, monkeypatch):
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")


@pytest.mark.parametrize(("change", "config", "cause"), [
    (removed, {}, r"'it' saved epoch-00002.npz \(\d+ training images then, \d+ now, \d+ validation images then"),
    (first("validation", Path.unlink), {}, r"saved epoch-00002.npz \((\d+) validation images then, (?!\1)\d+ now\)"),
    (first("test", Path.unlink), {}, r"\(a file, a label or the test set differs\)"),
    (replaced, {}, r"\(a file, a label or the test set differs\)"),
    (first("train", renamed), {}, r"epoch-00002.npz \(a file, a label or the test set differs\)"),
    (settings, {}, "was started with ONEDNN_DEFAULT_FPMATH_MODE None, not BF16; resume it with the earlier"),
    (None, {"epochs": 1}, "run 'it' has begun epoch 2, and --epochs 1 would end before it; omit --epochs when you"),
    (None, {"momentum": 0.5}, "was started with --momentum 0.9, not 0.5; omit what differs"),
])
def test_a_run_does_not_go_on_with_anything_else(here, monkeypatch, change, config, cause):
    if change:
        change(here, monkeypatch)
    with pytest.raises(LabError, match=cause):
        lab.run(dataclasses.replace(CONFIG, **config), RESUME)


def test_it_goes_on_with_the_same_and_its_record_says_on_what(here, interrupted):
    for path in here.glob("rgb/*/*"):  # As on another node: the same files, copied later.
        path.touch()
    record = lab.run(CONFIG, RESUME)
    assert record["data"] == interrupted[1]["data"]
    assert set(record["data"]) == {"train", "validation", "test"}
    other_seed = lab.run(dataclasses.replace(CONFIG, seed=2, epochs=1), Options("other", Path("results")))["data"]
    assert other_seed["train"]["data_set"] == record["data"]["train"]["data_set"], "whatever the split"
    assert other_seed["train"]["digest"] != record["data"]["train"]["digest"]


EARLY = [
    ("lab10 --data nowhere", "there is no such folder"),
    ("lab10 --data rgb --test-split 0", "--test-split 0.0 is out of range"),
    ("lab10 --results rgb/cat/00.bmp", "choose another --results"),
    ("lab10 --results results --name it", "run 'it' of lab10_caltech was interrupted"),
    ("lab10 --results results --name done", "run 'done' of lab10_caltech is finished"),
    ("lab10 --results results --name it --resume --batch-size 32 --seed 7",
     "'it' was started with --batch-size 8, not 32, and --seed 1, not 7; omit what differs"),
    ("lab10 --results results --resume --preset paper", "was started with --preset demo, not paper; omit"),
    ("lab10 --results results --resume --data embedded", "was started with --data rgb, not embedded; omit"),
    ("lab10 --results results --resume --epochs 1", "run 'it' has begun epoch 2"),
    ("lab10 --results results --resume --workers 2 --oversubscribe", "'it' was started with --workers 1, not 2"),
    ("lab01 --workers 2 --oversubscribe", "lab 1 measures one worker"),
    ("lab06 --remedy pieces --batch-size 5", "cannot be split into"),
]
PROGRAM = """
import json, sys
from labs.cli.commands import dispatch
from labs.launch import local
from labs.run.errors import LabError
local._launch = None  # Nothing may be started.
for words in json.loads(sys.argv[1]):
    try:
        dispatch(["run", *words.split()])
    except LabError as problem:
        print(problem)
assert "tensorflow" not in sys.modules
"""


def test_what_is_wrong_with_a_command_line_is_found_before_anything_starts(here):
    (here / "results/lab10_caltech/done").mkdir()
    (here / "results/lab10_caltech/done/record.json").touch()
    runs = sorted((here / "results").rglob("*"))
    done = subprocess.run([sys.executable, "-c", PROGRAM, json.dumps([words for words, _ in EARLY])], text=True,
                          capture_output=True, timeout=120, check=False, cwd=here,
                          env=os.environ | {"PYTHONPATH": str(ROOT), "LABS_RESULTS": str(here / "fresh")})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(EARLY), done.stdout
    for line, (words, cause) in zip(lines, EARLY, strict=True):
        assert cause in line, words
    assert sorted((here / "results").rglob("*")) == runs
    assert not [*(here / "fresh").glob("*")]


def test_every_lab_with_data_names_its_data_set():
    labs = map(catalogue.load_lab, catalogue.lab_names())
    assert all(each.data_set in registry.DATASETS for each in labs if hasattr(each.Config(), "data"))
