"""What follows a training: the model saved, the classes that it confuses, batch norm's statistics recomputed."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from labs.datasets.pipeline import Augment, eval_batches, train_batches
from labs.datasets.sharding import shard
from labs.datasets.splits import Splits, Subset
from labs.run import atomic, heartbeat
from labs.training import agreement, hvd_ops, keras_internals
from labs.training.workers import Job

MOST_BATCHES = 200
"""Batches per worker: batch norm's averages hardly change after a few thousand images (Wu and Johnson)."""


def keep_model(job: Job, model: tf.keras.Model, splits: Splits, batch_size: int,
               per_image: bool = False) -> dict[str, list[dict]]:
    """Save the network of the last epoch in the run's folder, and return tables of its test images for the record.

    Plain Keras can load model.keras; classes.json has the names by label. The table "confusion" counts pairs of
    classes; "right" has which images are right, for a paired test of two runs.
    """
    if job.rank == 0:  # Horovod: all workers hold the same weights; one of them writes them.
        # Without the optimizer and the kit's loss: plain Keras does not know their classes.
        plain = tf.keras.Model(model.inputs[0], model.outputs[0], name=model.name)
        with tempfile.TemporaryDirectory() as folder, atomic.writing(job.folder / "model.keras") as file:
            plain.save(path := Path(folder, "model.keras"))
            file.write(path.read_bytes())
        atomic.write_json(job.folder / "classes.json", list(splits.class_names))
    labels = splits.test.labels[splits.test.positions]
    guesses = predict(job, model, splits.test, batch_size)
    tables: dict[str, list[dict]] = {"confusion": _confusion(labels, guesses, splits.class_names)}
    if per_image:
        digits = np.where(guesses == labels, "1", "0")
        tables["right"] = [{"class": name, "right": "".join(digits[labels == label])}
                           for label, name in enumerate(splits.class_names)]
    return tables


def predict(job: Job, model: tf.keras.Model, subset: Subset, batch_size: int) -> np.ndarray:
    """Return the class that the network gives to each image of a subset, int64 [k]; one worker classifies each."""
    mine = subset.positions[job.rank :: job.size]
    guesses = [np.zeros(0, np.int64)]  # A worker may have no image.
    if len(mine):
        batches = eval_batches(subset.images, subset.labels, mine, batch_size)
        guesses += [model(x, training=False).numpy().argmax(-1) for x, _ in batches]
    heartbeat.current().pause()
    everything = np.empty(len(subset), np.int64)
    # Horovod: each worker has classified its own images.
    for rank, theirs in enumerate(hvd_ops.gather_object(np.concatenate(guesses))):
        everything[rank :: job.size] = theirs
    return everything


def _confusion(labels: np.ndarray, guesses: np.ndarray, class_names: Sequence[str]) -> list[dict[str, str | int]]:
    """Return the confusion counts: a row for each pair of true and predicted class that occurs."""
    counts = np.zeros((len(class_names), len(class_names)), np.int64)
    np.add.at(counts, (labels, guesses), 1)
    return [{"class": class_names[label], "predicted": class_names[guess], "images": int(counts[label, guess])}
            for label, guess in np.argwhere(counts)]


def recompute_statistics(job: Job, model: tf.keras.Model, train: Subset, batch_size: int,
                         augment: Augment | None = None) -> None:
    """Replace batch norm's running statistics by plain means over one more pass through the training images.

    After few, large steps they lag so far behind the weights that the accuracy is poor. Source: "precise BN" of Wu and
    Johnson 2021, Rethinking "Batch" in BatchNorm, arXiv 2105.07576, section 3.
    """
    layers = [layer for layer in keras_internals.all_layers(model)
              if isinstance(layer, tf.keras.layers.BatchNormalization)]
    momenta = [layer.momentum for layer in layers]
    epoch, seed = job.config.epochs, job.seed  # The order and augmentation of an epoch that was not trained on.
    mine = shard(train.positions, batch_size, job.rank, job.size, epoch, seed)
    batches = train_batches(train.images, train.labels, mine, augment, epoch=epoch, seed=seed)
    for count, (images, *_) in enumerate(batches.take(MOST_BATCHES)):
        for layer in layers:
            layer.momentum = count / (count + 1)  # Batch k has weight 1 / k, so that all have equal weight in the end.
        model(images, training=True)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    # Horovod: each worker has seen its own images; the statistics must be the mean over all workers.
    hvd_ops.average_statistics(model)
    agreement.compare_weights(model, "with recomputed statistics")
