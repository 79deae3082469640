"""A lab trains on a folder of the student's, or says in one line why it cannot; what is refused starts nothing."""

import numpy as np
import pytest

from labs import lab02_horovod
from labs.cli.commands import dispatch
from labs.run import command_line, local
from labs.run.errors import LabError


def mnist(root, side=28):
    images = np.random.default_rng(1).integers(0, 256, (60, side, side), np.uint8)
    labels = (np.arange(60) % 10).astype(np.uint8)
    np.savez(root / "mnist.npz", x_train=images, y_train=labels, x_test=images[:20], y_test=labels[:20])


def run(folder):
    config, options = command_line.parse(lab02_horovod.LAB, ["--data", str(folder), "--epochs", "1", "--threads", "0"])
    return lab02_horovod.run(config, options)


def test_a_lab_trains_on_a_folder(tmp_path):
    mnist(tmp_path)
    assert run(tmp_path)["config"]["data"] == str(tmp_path)


@pytest.mark.parametrize(("make", "cause"), [
    (lambda root: None, "is not mnist: no mnist.npz"), (lambda root: mnist(root, 32), "uint8 [n, 28, 28]")])
def test_wrong_data_are_refused_in_one_line(make, cause, tmp_path):
    make(tmp_path)
    with pytest.raises(LabError) as caught:
        run(tmp_path)
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("words", "cause"), [
    ("lab10 --data nowhere", "there is no such folder"),
    ("lab01 --workers 2 --oversubscribe", "lab01_baseline runs on one worker with these options; add --workers 1"),
    ("lab06 --remedy pieces --batch-size 5", "cannot be split into"),
])
def test_what_is_wrong_with_a_command_line_is_found_before_anything_starts(words, cause, tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_launch", None)
    with pytest.raises(LabError) as caught:
        dispatch(["run", *words.split()])
    assert cause in str(caught.value)
    assert not list(tmp_path.rglob("*")), "nothing is written"
