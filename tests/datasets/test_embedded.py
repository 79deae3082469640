"""Synthetic data: generated once, reproducible byte for byte, in the layout and with the faults of the real sets."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from labs.datasets import arrays, fetch
from labs.datasets.registry import DATASETS, get
from labs.datasets.synthetic import embedded
from labs.run.errors import LabError

forked = multiprocessing.get_context("fork")


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Return a function that generates a synthetic data set at most once for all tests."""
    root = tmp_path_factory.mktemp("data")
    return lambda name: embedded.make_synthetic(name, root)


@pytest.mark.parametrize("name", DATASETS)
def test_it_is_the_same_on_every_machine(made, name):
    assert embedded.folder_digest(made(name)) == embedded.DIGESTS[name], "other libraries than the pinned ones?"


@pytest.mark.parametrize("name", DATASETS)
def test_it_has_the_layout_of_the_real_set(made, name):
    home = made(name)
    assert fetch.locate(name, str(home)) in (home, home / get(name).inner)


def test_digits_are_divided_alike_per_class(made):
    digits = arrays.read_mnist(made("mnist"))
    assert len(digits.train_images) + len(digits.test_images) == 1797
    assert digits.train_images.shape[1:] == (28, 28, 1)
    for images, labels in (
        (digits.train_images, digits.train_labels),
        (digits.test_images, digits.test_labels),
    ):
        assert images.max() > 240
        assert images[:, :4].max() == images[:, :, 24:].max() == 0, "a margin of 4, as in MNIST"
        counts = Counter(labels.tolist())
        assert max(counts.values()) - min(counts.values()) <= 9


def test_cifar10_is_in_whole_records(made):
    read = arrays.read_cifar10(made("cifar10"))
    assert len(read.train_images) == 2000
    assert len(read.test_images) == 500
    assert read.class_names[:2] == ("airplane", "automobile")
    assert min(Counter(read.train_labels.tolist()).values()) > 150
    assert len({image.tobytes() for image in (*read.train_images, *read.test_images)}) == 2500, (
        "no picture twice"
    )


def test_fruits_are_on_white_in_two_parts(made):
    for part, count in (("Training", 60), ("Test", 20)):
        varieties = sorted((made("fruits360") / part).iterdir())
        assert len(varieties) == 6
        for variety in varieties:
            pictures = list(variety.glob("*_100.jpg"))
            assert len(pictures) == count
            with Image.open(pictures[0]) as picture:
                assert picture.size == (100, 100)
                assert min(picture.getpixel((1, 1))) > 240


def test_caltech256_has_sizes_grey_pictures_clutter_and_strays(made):
    home = fetch.locate("caltech256", str(made("caltech256")))
    folders = sorted(folder.name for folder in home.iterdir())
    assert len(folders) == 11
    assert folders[0] == "001.airplane"
    assert folders[-1] == "257.clutter"
    modes, sizes = Counter(), set()
    for folder in folders:
        pictures = sorted(home.glob(f"{folder}/*.jpg"))
        assert 80 <= len(pictures) < 100
        assert pictures[0].name == f"{folder[:3]}_0001.jpg"
        for path in pictures:
            with Image.open(path) as picture:
                modes[picture.mode] += 1
                sizes.add(picture.size)
    assert set(modes) == {"RGB", "L"}
    assert 10 < modes["L"] < 60
    assert len(sizes) > 500
    strays = [path for path in home.rglob("*") if path.is_file() and not path.match("???.*/???_????.jpg")]
    assert {path.name for path in strays} == {"vision309.jpg", "RENAME2"}


def test_faces_have_ages_and_the_faults_of_the_real_set(made):
    home = made("imdb_wiki")
    faces = arrays.read_wiki(home)
    assert len(faces.paths) == 475
    assert faces.left_out == {"no face": 10, "two faces": 5, "absurd age": 10}
    assert faces.ages.min() == 15
    assert faces.ages.max() == 85
    for path, age in zip(faces.paths, faces.ages, strict=True):
        born, taken = path.rsplit("/", 1)[1].split("_")[1:]
        assert age == int(taken[:4]) - int(born[:4])
    bad = [path for path in faces.paths if not _opens(home / path)]
    assert len(bad) == 10


def _opens(path):
    try:
        with Image.open(path) as picture:
            picture.load()
    except OSError:
        return False
    return True


def test_older_faces_are_greyer(made):
    """What a network can learn is there: above the forehead, hair turns grey with the years."""
    home = made("imdb_wiki")
    faces = arrays.read_wiki(home)
    colours = {}
    for path, age in zip(faces.paths, faces.ages, strict=True):
        if _opens(home / path):
            with Image.open(home / path) as picture:
                pixels = np.asarray(picture.convert("HSV").resize((16, 16)))[1:4, 6:10, 1]
            colours.setdefault(age // 35, []).append(pixels.mean())
    assert np.mean(colours[2]) < 0.8 * np.mean(colours[0])


def test_a_linear_model_learns_something_but_not_all(made):
    """Pictures are worth a convolutional network: neither noise nor given away by a colour."""
    from sklearn.linear_model import RidgeClassifier

    read = arrays.read_cifar10(made("cifar10"))
    train, test = (
        images[:, ::2, ::2].reshape(len(images), -1) / 255 for images in (read.train_images, read.test_images)
    )
    accuracy = RidgeClassifier(100).fit(train, read.train_labels).score(test, read.test_labels)
    assert 0.15 < accuracy < 0.6


# --- made once ---


@pytest.fixture
def go(tmp_path, monkeypatch):
    """Put in a maker that notes each start in `starts` and goes on when the file `go` is there."""

    def make(home):
        with open(tmp_path / "starts", "a") as file:
            file.write("start\n")
        (home / "half").touch()
        while not (tmp_path / "go").exists():
            time.sleep(0.01)
        (home / "mnist.npz").touch()

    monkeypatch.setitem(embedded.MAKERS, "mnist", make)
    return tmp_path / "go"


def start_making(root):
    worker = forked.Process(target=embedded.make_synthetic, args=("mnist", root), daemon=True)
    worker.start()
    return worker


def test_one_process_makes_it_and_the_others_wait(go, tmp_path):
    workers = [start_making(tmp_path / "data") for _ in range(3)]
    while not (tmp_path / "starts").exists():
        assert all(worker.is_alive() for worker in workers)
    go.touch()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert (tmp_path / "starts").read_text() == "start\n"


def test_a_killed_maker_leaves_nothing_that_is_taken_for_the_set(go, tmp_path):
    worker = start_making(tmp_path / "data")
    while not list(tmp_path.glob("data/embedded/.mnist-v1.*.part/half")):
        assert worker.is_alive()
    worker.kill()
    worker.join()
    assert not embedded.synthetic_folder("mnist", tmp_path / "data").exists()
    go.touch()
    home = embedded.make_synthetic("mnist", tmp_path / "data")
    assert (home / "mnist.npz").exists()
    assert not list(home.parent.glob(".*.part")), "what the killed one left is cleared away"


def test_what_is_made_is_not_made_again(go, tmp_path):
    go.touch()
    home = embedded.make_synthetic("mnist", tmp_path)
    assert embedded.make_synthetic("mnist", tmp_path) == home
    assert (tmp_path / "starts").read_text() == "start\n"


def test_verify_finds_one_changed_byte(made, tmp_path):
    home = embedded.synthetic_folder("mnist", tmp_path)
    home.mkdir(parents=True)
    content = (made("mnist") / "mnist.npz").read_bytes()
    (home / "mnist.npz").write_bytes(content)
    assert "is as generated" in fetch.verify_dataset("mnist", tmp_path)
    (home / "mnist.npz").write_bytes(content[:-1] + b"\1")
    with pytest.raises(LabError, match="remove it to generate it again"):
        fetch.verify_dataset("mnist", tmp_path)
