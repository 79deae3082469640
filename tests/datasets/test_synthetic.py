"""Synthetic data: generated once, reproducible byte for byte, in the layout and with the faults of the real sets."""

from __future__ import annotations

import multiprocessing
import time

import pytest
from PIL import Image

from labs.datasets import arrays, fetch, locate, synthetic
from labs.datasets.registry import DATASETS, get
from labs.run.errors import LabError

forked = multiprocessing.get_context("fork")


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Return a function that generates a synthetic data set at most once for all tests."""
    root = tmp_path_factory.mktemp("data")

    def make(name):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LABS_DATA", str(root))
            return synthetic.make_synthetic(name)

    return make


@pytest.mark.parametrize("name", DATASETS)
def test_it_is_the_same_on_every_machine_in_the_layout_of_the_real_set(made, name):
    home = made(name)
    assert synthetic.folder_digest(home) == synthetic.DIGESTS[name], "other libraries than the pinned ones?"
    assert locate(name, str(home)) in (home, home / get(name).inner)


def test_caltech256_has_sizes_grey_pictures_clutter_and_strays(made):
    home = locate("caltech256", str(made("caltech256")))
    folders = sorted(folder.name for folder in home.iterdir())
    assert (len(folders), folders[0], folders[-1]) == (11, "001.airplane", "257.clutter")
    modes, sizes = [], set()
    for path in home.glob("*/???_????.jpg"):
        with Image.open(path) as picture:
            modes.append(picture.mode)
            sizes.add(picture.size)
    assert set(modes) == {"RGB", "L"}
    assert len(sizes) > 500
    strays = [path for path in home.rglob("*") if path.is_file() and not path.match("???.*/???_????.jpg")]
    assert {path.name for path in strays} == {"vision309.jpg", "RENAME2"}


def test_faces_have_ages_and_the_faults_of_the_real_set(made):
    faces = arrays.read_wiki(made("imdb_wiki"))
    assert (len(faces.paths), faces.ages.min(), faces.ages.max()) == (475, 15, 85)
    assert faces.left_out == {"no face": 10, "two faces": 5, "absurd age": 10}
    for path, age in zip(faces.paths, faces.ages, strict=True):
        born, taken = path.rsplit("/", 1)[1].split("_")[1:]
        assert age == int(taken[:4]) - int(born[:4])


def test_a_linear_model_learns_something_but_not_all(made):
    """Pictures are worth a convolutional network: neither noise nor given away by a colour."""
    from sklearn.linear_model import RidgeClassifier

    read = arrays.read_cifar10(made("cifar10"))
    train, test = (images[:, ::2, ::2].reshape(len(images), -1) / 255
                   for images in (read.train_images, read.test_images))
    accuracy = RidgeClassifier(100).fit(train, read.train_labels).score(test, read.test_labels)
    assert 0.15 < accuracy < 0.6


@pytest.fixture
def go(tmp_path, monkeypatch):
    """Replace a maker by one that notes each start in `starts` and continues when the file `go` is there."""

    def make(home):
        with open(tmp_path / "starts", "a") as file:
            file.write("start\n")
        (home / "half").touch()
        while not (tmp_path / "go").exists():
            time.sleep(0.01)
        (home / "mnist.npz").touch()

    monkeypatch.setenv("LABS_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(synthetic.MAKERS, "mnist", make)
    return tmp_path / "go"


def start_making():
    worker = forked.Process(target=synthetic.make_synthetic, args=("mnist",), daemon=True)
    worker.start()
    return worker


def test_one_process_makes_it_and_the_others_wait(go, tmp_path):
    workers = [start_making() for _ in range(3)]
    while not (tmp_path / "starts").exists():
        assert all(worker.is_alive() for worker in workers)
    go.touch()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert (synthetic.make_synthetic("mnist") / "mnist.npz").exists()
    assert (tmp_path / "starts").read_text() == "start\n"


def test_a_killed_maker_leaves_nothing_that_is_taken_for_the_set(go, tmp_path):
    worker = start_making()
    while not list(tmp_path.glob("data/embedded/.mnist-v1.*.part/half")):
        assert worker.is_alive()
    worker.kill()
    worker.join()
    assert not synthetic.synthetic_folder("mnist").exists()
    go.touch()
    home = synthetic.make_synthetic("mnist")
    assert (home / "mnist.npz").exists()
    assert not list(home.parent.glob(".*.part")), "what the killed one left is removed"


def test_verify_finds_one_changed_byte(made, tmp_path, monkeypatch):
    content = (made("mnist") / "mnist.npz").read_bytes()
    monkeypatch.setenv("LABS_DATA", str(tmp_path))
    file = synthetic.synthetic_folder("mnist") / "mnist.npz"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    assert "is as generated" in fetch.verify_dataset("mnist")
    file.write_bytes(content[:-1] + b"\1")
    with pytest.raises(LabError, match="remove it to generate it again"):
        fetch.verify_dataset("mnist")
