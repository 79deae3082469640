"""A lab trains on a folder of the student's, or says in one line why it cannot."""

import numpy as np
import pytest
from PIL import Image

from labs.run import catalogue, command_line
from labs.run.errors import LabError

SHORT = {"images": 50, "epochs": 1, "batch_size": 8, "image_size": 16, "warmup_epochs": 0, "threads": 0}


def write_image(path, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (20, 20, 3), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def classes(root, names=("cat", "dog"), count=12):
    for code, name in enumerate(names):
        for k in range(count):
            write_image(root / name / f"{k:03d}.png", 100 * code + k)


def train_and_test(root):
    classes(root / "train")
    classes(root / "Test", count=4)


def mnist(root, side=28):
    root.mkdir()
    images = np.random.default_rng(1).integers(0, 256, (60, side, side), np.uint8)
    labels = (np.arange(60) % 10).astype(np.uint8)
    np.savez(root / "mnist.npz", x_train=images, y_train=labels, x_test=images[:20], y_test=labels[:20])


def no_images(root):
    classes(root)
    for path in root.rglob("*.png"):
        path.write_text("no image")


def run(name, folder, results):
    """Make a short run on a folder, as one worker in this process: a launch takes longer."""
    lab = catalogue.load_lab(name)
    words = [word for field, value in SHORT.items() if hasattr(lab.presets["demo"], field)
             for word in (f"--{field.replace('_', '-')}", str(value))]
    config, options = command_line.parse(lab, ["--data", str(folder), *words, "--results", str(results)])
    return lab.run(config, options)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "make"), [
    ("lab09_fruits", train_and_test), ("lab10_caltech", classes), ("lab02_horovod", mnist),
])
def test_a_lab_trains_on_a_folder(name, make, tmp_path):
    make(tmp_path / "own data")
    assert run(name, tmp_path / "own data", tmp_path)["config"]["data"] == str(tmp_path / "own data")


@pytest.mark.parametrize(("name", "make", "cause"), [
    ("lab09_fruits", lambda root: None, "there is no such folder; use embedded, real or a folder"),
    ("lab09_fruits", lambda root: classes(root, ("cat",)), "has images of one class only (cat)"),
    ("lab10_caltech", lambda root: classes(root / "inner" / "set"), "name the folder of the class folders"),
    ("lab09_fruits", no_images, "cannot be decoded"),
    ("lab02_horovod", classes, "is not mnist: no mnist.npz"),
    ("lab02_horovod", lambda root: mnist(root, 32), "uint8 [n, 28, 28]"),
    ("lab08_throughput", classes, "no wiki.mat"),
])
def test_wrong_data_are_refused_in_one_line(name, make, cause, tmp_path):
    make(tmp_path / "mine")
    with pytest.raises(LabError) as caught:
        run(name, tmp_path / "mine", tmp_path / "results")
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)
