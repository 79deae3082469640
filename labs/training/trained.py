"""A run's trained classifier: saving it beside the record, loading it, and counting the classes that it confuses."""

from __future__ import annotations

import dataclasses
import json
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from labs.datasets.pipeline import eval_batches
from labs.datasets.splits import Splits, Subset
from labs.models import transformer  # noqa: F401 - registers its layer, which `load_model` needs.
from labs.run import atomic, heartbeat
from labs.run.errors import LabError
from labs.training import hvd_ops
from labs.training.workers import Job

MODEL, CLASSES = "model.keras", "classes.json"


@dataclasses.dataclass(frozen=True)
class Trained:
    """A classifier and the names of its classes."""

    model: tf.keras.Model
    """Input uint8 [batch, size, size, channels], output probabilities [batch, classes]."""
    class_names: Sequence[str]


def keep_model(job: Job, model: tf.keras.Model, splits: Splits, batch_size: int,
               per_image: bool = False) -> dict[str, list[dict]]:
    """Save the network of the last epoch in the run's folder, and return tables of its test images for the record.

    The table "confusion" counts pairs of classes. Plain Keras can load the network:
    `keras.models.load_model("model.keras")`; classes.json has the names by label.

    Args:
        model: Trained by `fit`.
        per_image: Also return the table "right": which test images it gets right, for a paired test of two runs.
    """
    if job.rank == 0:  # Horovod: all workers hold the same weights; one of them writes them.
        # Without the optimizer and the kit's loss: plain Keras does not know their classes.
        plain = tf.keras.Model(model.inputs[0], model.outputs[0], name=model.name)
        with tempfile.TemporaryDirectory() as folder, atomic.writing(job.folder / MODEL) as file:
            plain.save(path := Path(folder, MODEL))
            file.write(path.read_bytes())
        atomic.write_json(job.folder / CLASSES, list(splits.class_names))
    labels = splits.test.labels[splits.test.positions]
    guesses = predicted(job, model, splits.test, batch_size)
    tables = {"confusion": _confusion(labels, guesses, splits.class_names)}
    return tables | ({"right": _right(labels, guesses, splits.class_names)} if per_image else {})


def load(folder: Path) -> Trained:
    """Read what `keep_model` wrote.

    Raises:
        LabError: The model or its class names are missing or damaged.
    """
    try:
        names = json.loads((folder / CLASSES).read_text())
        if not zipfile.is_zipfile(folder / MODEL):  # Keras would say that there is no such file.
            raise LabError(f"{MODEL} is damaged")
        # `safe_mode`: code in a model from elsewhere is not run.
        model = tf.keras.models.load_model(folder / MODEL, compile=False, safe_mode=True)
        shapes = [*model.input_shape[1:3], model.output_shape[-1]]
    except Exception as problem:  # Keras' reader raises many kinds of exceptions for a damaged file.
        reason = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise LabError(f"cannot read the trained model in {folder} ({reason}); train again") from problem
    if shapes != [shapes[0], shapes[0], len(names)]:
        raise LabError(f"{folder / CLASSES} has {len(names)} names for {shapes[2]} outputs; train again")
    return Trained(model, names)


def predicted(job: Job, model: tf.keras.Model, subset: Subset, batch_size: int) -> np.ndarray:
    """Return the class that the network gives to each image of a subset, int64 [k]; each is classified by one worker.

    Args:
        model: Trained by `fit`.
    """
    mine = subset.positions[job.rank :: job.size]
    guesses = [np.zeros(0, np.int64)]  # A worker may have no image.
    if len(mine):
        batches = eval_batches(subset.images, subset.labels, mine, batch_size)
        guesses += [model(x, training=False).numpy().argmax(-1) for x, _ in batches]
    heartbeat.current().pause()
    everything = np.empty(len(subset), np.int64)
    # Horovod: each worker has classified its own images.
    for rank, shard in enumerate(hvd_ops.gather_object(np.concatenate(guesses))):
        everything[rank :: job.size] = shard
    return everything


def _confusion(labels: np.ndarray, guesses: np.ndarray, class_names: Sequence[str]) -> list[dict[str, str | int]]:
    """Return the confusion counts: a row for each pair of true and predicted class that occurs."""
    counts = np.zeros((len(class_names), len(class_names)), np.int64)
    np.add.at(counts, (labels, guesses), 1)
    return [{"class": class_names[label], "predicted": class_names[guess], "images": int(counts[label, guess])}
            for label, guess in np.argwhere(counts)]


def _right(labels: np.ndarray, guesses: np.ndarray, class_names: Sequence[str]) -> list[dict[str, str]]:
    """Return a row for each class: "1" for each of its images that the network gets right, "0" for the others."""
    return [{"class": name, "right": "".join("01"[int(right)] for right in guesses[labels == label] == label)}
            for label, name in enumerate(class_names)]
