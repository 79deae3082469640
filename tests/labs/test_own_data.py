"""A lab trains on a folder of the student's, or says in one line why it cannot."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from PIL import Image

from labs.datasets.arrays import CIFAR10_RECORD
from labs.datasets.synthetic import _write_wiki_mat
from labs.run import catalogue, command_line
from labs.run.errors import LabError

LABS = [sys.executable, "-m", "labs"]


def picture(path, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (20, 20, 3), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def classes(root, count=12):
    for code, name in enumerate(("cat", "dog")):
        for k in range(count):
            picture(root / name / f"{k:03d}.png", 100 * code + k)


def folder_per_class(root):
    classes(root)
    picture(root / "stray.jpg", 7)
    (root / ".DS_Store").write_bytes(b"\0")
    (root / "cat" / "notes.txt").write_text("not a picture")
    (root / "empty").mkdir()


def divided(train, test):
    def make(root):
        classes(root / train)
        classes(root / test, 4)

    return make


def mnist(root, name="mnist.npz"):
    root.mkdir(exist_ok=True)
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (60, 28, 28), np.uint8)
    labels = (np.arange(60) % 10).astype(np.uint8)
    np.savez(root / name, x_train=images, y_train=labels, x_test=images[:20], y_test=labels[:20])


def cifar10(root):
    root.mkdir()
    records = np.random.default_rng(1).integers(0, 256, (60, CIFAR10_RECORD), np.uint8)
    records[:, 0] = np.arange(60) % 10
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (root / name).write_bytes(records.tobytes())


def wiki(root):
    rows = []
    for k in range(40):
        rows.append({"dob": 719_529.0 + 366 * (k % 20), "photo_taken": 2010.0, "full_path": f"00/{k}.png",
                     "gender": 1.0, "name": f"Person {k}", "face_location": np.array([[1.0, 1.0, 20.0, 20.0]]),
                     "face_score": 3.0, "second_face_score": np.nan})
        picture(root / rows[-1]["full_path"], k)
    _write_wiki_mat(root / "wiki.mat", rows)


SMALL = {"epochs": 1, "image_size": 16, "batch_size": 8, "warmup_epochs": 0, "images": 50,
         "threads": 0}
"""Options that make a run short, for the labs that have them."""


def arguments(lab, folder):
    """The words behind `labs run LAB` that make a short run on a folder."""
    fields = {field.name for field in dataclasses.fields(lab.Config)}
    small = [word for name, value in SMALL.items() if name in fields
             for word in (f"--{name.replace('_', '-')}", str(value))]
    return ["--data", str(folder), *small]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "make"), [
    ("lab09_fruits", divided("train", "Test")), ("lab10_caltech", folder_per_class), ("lab02_horovod", mnist),
    ("lab03_lr_scaling", cifar10), ("lab08_throughput", wiki),
])
def test_a_lab_trains_on_a_folder(name, make, tmp_path):
    """One lab for each reader, with the parser and the `run` of a worker, in this process: a launch takes longer."""
    lab, folder = catalogue.load_lab(name), tmp_path / "own data"
    make(folder)
    config, options = command_line.parse(lab, [*arguments(lab, folder), "--name", "it", "--results", str(tmp_path)])
    record = lab.run(config, options)
    assert record["config"]["data"] == str(folder)
    assert (tmp_path / name / "it" / "record.json").is_file()


def archive(root):
    with zipfile.ZipFile(root, "w") as file:
        file.writestr("cat/1.png", b"")


def images_in_the_folder_itself(root):
    for k in range(3):
        picture(root / f"{k}.png", k)


def one_class(root):
    picture(root / "cat" / "1.png", 1)


def one_level_too_high(root):
    classes(root / "inner" / "set")


def no_pictures(root):
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for k in range(8):
            (root / name / f"{k}.jpg").write_text("no picture")


def class_in_the_test_alone(root):
    classes(root / "train")
    classes(root / "test")
    picture(root / "test" / "emu" / "1.png", 1)


def no_square_digits(root):
    root.mkdir()
    images, labels = np.zeros((20, 32, 32), np.uint8), np.arange(20, dtype=np.uint8) % 10
    np.savez(root / "mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)


WRONG = [
    ("lab09_fruits", None, "there is no such folder; use embedded, real or a folder"),
    ("lab09_fruits", archive, "is a file; unpack it if it is an archive, and name the folder"),
    ("lab09_fruits", images_in_the_folder_itself, "put the images of each class into its own folder"),
    ("lab09_fruits", one_class, "has images of one class only (cat)"),
    ("lab10_caltech", one_level_too_high, "inner/set?"),
    ("lab10_caltech", divided("train", "test"), "mine/train?"),
    ("lab09_fruits", no_pictures, "cannot be decoded"),
    ("lab09_fruits", class_in_the_test_alone, "has the class emu, but"),
    ("lab02_horovod", folder_per_class, "is not MNIST handwritten digits: no mnist.npz"),
    ("lab02_horovod", no_square_digits, "uint8 [n, 28, 28]"),
    ("lab08_throughput", folder_per_class, "no wiki.mat"),
]


@pytest.mark.parametrize(("name", "make", "cause"), WRONG)
def test_wrong_data_are_refused_in_one_line_and_leave_nothing(name, make, cause, tmp_path):
    lab, folder = catalogue.load_lab(name), tmp_path / "mine"
    if make:
        make(folder)
    results = tmp_path / "results"
    config, options = command_line.parse(lab, [*arguments(lab, folder), "--name", "it", "--results", str(results)])
    with pytest.raises(LabError) as caught:
        lab.run(config, options)
    message = str(caught.value)
    assert cause in message
    assert "\n" not in message
    assert not list(results.glob("*/*")), "a run's folder is left behind"


@pytest.mark.workers
def test_refused_data_leave_no_run_folder(tmp_path):
    one_class(tmp_path / "mine")
    done = subprocess.run([*LABS, "run", "lab09_fruits", "--workers", "2", "--data", "mine"], capture_output=True,
                          text=True, timeout=240, check=False, cwd=tmp_path,
                          env=os.environ | {"LABS_RESULTS": str(tmp_path / "results")})
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if "labs: error:" in line]
    assert len(errors) == 1
    assert "has images of one class only (cat)" in errors[0]
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "results").glob("*/*"))
