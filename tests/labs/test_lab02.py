"""Lab 2: the version for many workers is the baseline and a few marked lines, and computes the same."""

from __future__ import annotations

import difflib
import inspect

import pytest

from labs import lab02_horovod as lab
from labs.datasets import arrays, locate
from labs.launch import local
from tests.course.exercises.solved import solved


def test_the_diff_is_short_and_every_new_line_is_marked():
    versions = [inspect.getsource(each).splitlines()[2:] for each in (lab.train_alone, lab.train_together)]
    diff = [line for line in difflib.ndiff(*versions) if line[0] in "+-" and line[1:].strip()]
    removed, added = ([line for line in diff if line[0] == sign] for sign in "-+")
    assert len(removed) <= 3
    assert len(added) <= 10
    assert all("# Horovod: " in line for line in added), "\n".join(added)
    assert "# Horovod" not in "".join(versions[0])


@pytest.mark.workers
@pytest.mark.filterwarnings("error:.*shuffle")  # Keras 3 warns where `fit` would shuffle a tf.data.Dataset.
def test_two_workers_by_hand_compute_what_one_computes():
    """One worker with the global batch and its scaled learning rate, against two with those of one."""
    import tensorflow as tf

    digits = arrays.read_mnist(locate("mnist", "embedded"))
    train = digits.train_images, digits.train_labels
    model = lab.train_alone(*train, batch_size=64, epochs=2, base_lr=0.002, seed=3)
    loss, accuracy = model.evaluate(digits.test_images, digits.test_labels, verbose=0)
    args = ["--code", "textbook", "--batch-size", "32", "--epochs", "2", "--base-lr", "0.001", "--seed", "3"]
    two = local.run(lab, args, workers=2, oversubscribe=True)
    assert two["layout"]["size"] == 2
    assert two["metrics"]["test_loss"] == pytest.approx(loss, rel=1e-3)
    assert two["metrics"]["test_accuracy"] == pytest.approx(accuracy, abs=0.01)
    tf.keras.backend.clear_session()


@pytest.mark.everyday
@pytest.mark.workers
def test_two_workers_with_the_kit_learn_the_digits():
    record = local.run(lab, ["--epochs", "4"], workers=2, oversubscribe=True)
    row = record["history"][-1]
    assert record["layout"]["global_batch_size"] == 64
    assert row["learning_rate"] == pytest.approx(2 * record["config"]["base_lr"])
    assert row["steps"] == -(-row["images"] // 64)
    assert record["metrics"]["test_accuracy"] > 0.85
    solved("lab02.q3", "lab02.q4")


@pytest.mark.workers
def test_a_run_trains_on_as_many_images_as_it_is_given():
    record = local.run(lab, ["--images", "96", "--epochs", "1"], workers=1)
    assert record["history"][-1]["images"] == 96
