"""Lab 10: how a batch is shared among workers changes nothing, if the network lets it."""

import dataclasses
import re
import subprocess
import sys

import pytest
from PIL import Image

from labs import lab10_caltech as lab
from labs.run import local
from labs.run.command_line import to_argv
from labs.run.fields import Options
from labs.run.paths import ROOT

pytestmark = [pytest.mark.everyday, pytest.mark.workers]


def test_two_workers_that_share_a_batch_compute_what_one_computes(tmp_path):
    """Group norm normalizes each image by itself; batch norm would normalize over the images of one worker."""
    config = dataclasses.replace(lab.PRESETS["demo"], norm="group", epochs=1, image_size=16)
    one = lab.run(config, Options(results=tmp_path))
    shared = dataclasses.replace(config, batch_size=config.batch_size // 2, scaling="none")
    half = local.run(lab, [*to_argv(shared), "--results", str(tmp_path)], workers=2, oversubscribe=True)
    here, there = one["history"][0], half["history"][0]
    assert (there["steps"], there["learning_rate"]) == (here["steps"], here["learning_rate"])
    assert there["loss"] == pytest.approx(here["loss"], rel=2e-4)
    assert there["val_loss"] == pytest.approx(here["val_loss"], rel=2e-3)
    first, second = ("".join(row["right"] for row in run["tables"]["right"]) for run in (one, half))
    assert sum(a != b for a, b in zip(first, second, strict=True)) <= 2, "the images have one order on any workers"


def test_the_trained_network_can_be_used_with_and_without_the_kit(tmp_path):
    """Red and green squares: 30 steps suffice to tell them apart, and all of the test images are counted."""
    for name, colour in (("green", (0, 200, 0)), ("red", (200, 0, 0))):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(20):
            Image.new("RGB", (24, 24), tuple(channel + number for channel in colour)).save(
                tmp_path / "data" / name / f"{number:02d}.png")
    config = dataclasses.replace(lab.PRESETS["demo"], data=str(tmp_path / "data"), image_size=16, batch_size=4,
                                 augment=False)
    record = local.run(lab, [*to_argv(config), "--results", str(tmp_path / "results")], workers=2, oversubscribe=True)
    counts = record["tables"]["confusion"]
    assert sum(row["images"] for row in counts) == 9  # Of 40: 24 for training, 7 for validation.
    right = sum(row["images"] for row in counts if row["class"] == row["predicted"])
    assert right / 9 == pytest.approx(record["metrics"]["test_accuracy"])
    (folder,) = (tmp_path / "results" / "lab10_caltech").iterdir()
    (lines,) = re.findall(r"```python\n(import json, keras\n.*?)```", (ROOT / "docs/use.md").read_text(), re.DOTALL)
    loaded, _, model, image, classified = lines.replace('"photo.jpg"', "path").splitlines()
    without = (f"{loaded}\nkeras.config.disable_interactive_logging()\nrun = '{folder}'\n{model}\n"
               f"for path in ('data/green/03.png', 'data/red/07.png'):\n    {image}\n    {classified}")
    plain = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert [line for line in plain.stdout.split() if line.isalpha()] == ["green", "red"]
