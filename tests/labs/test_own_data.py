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
from labs.datasets.synthetic import write_wiki_mat
from labs.run import catalogue, command_line
from labs.run.errors import LabError


def write_image(path, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (20, 20, 3), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def write_classes(root, count=12):
    for code, name in enumerate(("cat", "dog")):
        for k in range(count):
            write_image(root / name / f"{k:03d}.png", 100 * code + k)


def folder_per_class(root):
    write_classes(root)
    (root / "cat" / "notes.txt").write_text("not an image")
    (root / "empty").mkdir()


def train_and_test(root):
    write_classes(root / "train")
    write_classes(root / "Test", 4)


def train_and_validation(root):
    write_classes(root / "train")
    write_classes(root / "val", 4)


def mnist(root, side=28):
    root.mkdir()
    images = np.random.default_rng(1).integers(0, 256, (60, side, side), np.uint8)
    labels = (np.arange(60) % 10).astype(np.uint8)
    np.savez(root / "mnist.npz", x_train=images, y_train=labels, x_test=images[:20], y_test=labels[:20])


def no_square_digits(root):
    mnist(root, 32)


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
        write_image(root / rows[-1]["full_path"], k)
    write_wiki_mat(root / "wiki.mat", rows)


def archive(root):
    with zipfile.ZipFile(root, "w") as file:
        file.writestr("cat/1.png", b"")


def one_class(root):
    write_image(root / "cat" / "1.png", 1)


def one_level_too_high(root):
    write_classes(root / "inner" / "set")


def no_images(root):
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for k in range(8):
            (root / name / f"{k}.jpg").write_text("no image")


def parse(name, folder, results):
    """Return a lab, and the config and options of a short run on a folder."""
    lab, small = catalogue.load_lab(name), {"epochs": 1, "image_size": 16, "batch_size": 8, "warmup_epochs": 0,
                                            "images": 50, "threads": 0}
    fields = {field.name for field in dataclasses.fields(lab.Config)} & small.keys()
    words = [word for field in fields for word in (f"--{field.replace('_', '-')}", str(small[field]))]
    return lab, *command_line.parse(lab, ["--data", str(folder), *words, "--name", "it", "--results", str(results)])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "make"), [
    ("lab09_fruits", train_and_test), ("lab10_caltech", folder_per_class), ("lab02_horovod", mnist),
    ("lab03_lr_scaling", cifar10), ("lab08_throughput", wiki),
])
def test_a_lab_trains_on_a_folder(name, make, tmp_path):
    """One lab for each reader, with the parser and the `run` of a worker, in this process: a launch takes longer."""
    make(tmp_path / "own data")
    lab, config, options = parse(name, tmp_path / "own data", tmp_path)
    assert lab.run(config, options)["config"]["data"] == str(tmp_path / "own data")
    assert (tmp_path / name / "it" / "record.json").is_file()


@pytest.mark.parametrize(("name", "make", "cause"), [
    ("lab09_fruits", None, "there is no such folder; use embedded, real or a folder"),
    ("lab09_fruits", archive, "there is no such folder; use embedded, real or a folder, and unpack an archive"),
    ("lab10_caltech", one_level_too_high, "inner/set?"),
    ("lab10_caltech", train_and_validation, "mine/train?"),
    ("lab09_fruits", no_images, "cannot be decoded"),
    ("lab02_horovod", folder_per_class, "is not mnist: no mnist.npz"),
    ("lab02_horovod", no_square_digits, "uint8 [n, 28, 28]"),
    ("lab08_throughput", folder_per_class, "no wiki.mat"),
])
def test_wrong_data_are_refused_in_one_line_and_leave_nothing(name, make, cause, tmp_path):
    if make:
        make(tmp_path / "mine")
    lab, config, options = parse(name, tmp_path / "mine", tmp_path / "results")
    with pytest.raises(LabError) as caught:
        lab.run(config, options)
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "results").glob("*/*")), "a run's folder is left behind"


@pytest.mark.workers
def test_refused_data_leave_no_run_folder(tmp_path):
    one_class(tmp_path / "mine")
    done = subprocess.run([sys.executable, "-m", "labs", "run", "lab09_fruits", "--workers", "2", "--data", "mine"],
                          capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path,
                          env=os.environ | {"LABS_RESULTS": str(tmp_path / "results")})
    assert done.returncode == 1
    (error,) = [line for line in done.stderr.splitlines() if "labs: error:" in line]
    assert "has images of one class only (cat)" in error
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "results").glob("*/*"))
