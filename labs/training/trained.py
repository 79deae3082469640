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

from labs.datasets.decode import grey, read_image
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

    def classify(self, path: Path) -> np.ndarray:
        """Return the probability of each class for an image file, float32 [classes].

        Raises:
            LabError: The image cannot be decoded.
        """
        _, size, _, channels = self.model.input_shape
        pixels = read_image(path, size)
        return self.model((grey(pixels) if channels == 1 else pixels)[None], training=False).numpy()[0]


def keep_model(job: Job, model: tf.keras.Model, splits: Splits, batch_size: int) -> dict[str, list[dict]]:
    """Save the network of the last epoch in the run's folder, and return its confusion table for the record.

    Plain Keras can load it: `keras.models.load_model("model.keras")`; classes.json has the names by label.

    Args:
        model: Trained by `fit`.
    """
    if job.rank == 0:  # Horovod: all workers hold the same weights; one of them writes them.
        # Without the optimizer and the kit's loss: plain Keras does not know their classes.
        plain = tf.keras.Model(model.inputs[0], model.outputs[0], name=model.name)
        with tempfile.TemporaryDirectory() as folder, atomic.writing(job.folder / MODEL) as file:
            plain.save(path := Path(folder, MODEL))
            file.write(path.read_bytes())
        atomic.write_json(job.folder / CLASSES, list(splits.class_names))
    return {"confusion": confusion(job, model, splits.test, splits.class_names, batch_size)}


def load(folder: Path) -> Trained:
    """Read what `keep_model` wrote.

    Raises:
        LabError: The model or its class names are missing or damaged.
    """
    try:
        names = json.loads(atomic.read_text(folder / CLASSES))
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


def confusion(job: Job, model: tf.keras.Model, subset: Subset, class_names: Sequence[str],
              batch_size: int) -> list[dict[str, str | int]]:
    """Return the confusion counts: a row for each pair of true and predicted class that occurs.

    Args:
        model: Trained by `fit`.
        subset: The test images; each is classified by one worker.
    """
    mine = subset.positions[job.rank :: job.size]
    counts = np.zeros((len(class_names), len(class_names)), np.int64)
    if len(mine):
        for x, y in eval_batches(subset.images, subset.labels, mine, batch_size):
            np.add.at(counts, (y.numpy(), model(x, training=False).numpy().argmax(-1)), 1)
    heartbeat.current().pause()
    counts = sum(hvd_ops.gather_object(counts))  # Horovod: each worker has counted its own images.
    return [{"class": class_names[label], "predicted": class_names[guess], "images": int(counts[label, guess])}
            for label, guess in np.argwhere(counts)]
