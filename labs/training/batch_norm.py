"""Batch norm's running statistics, recomputed for the final weights ("precise batch norm").

In training, batch norm normalizes each batch by the batch's own mean and variance; in evaluation, by running averages
over the last steps. Those averages belong to earlier weights. After few, large steps they lag so far behind that a well
trained network gets a poor accuracy.
"""

from __future__ import annotations

import tensorflow as tf

from labs.datasets.augment import Augment
from labs.datasets.pipeline import train_batches
from labs.datasets.sharding import shard
from labs.datasets.splits import Subset
from labs.training import agreement, hvd_ops, keras_internals
from labs.training.workers import Job

MOST_STEPS = 200
"""Batches per worker: the averages hardly change after a few thousand images (Wu and Johnson)."""


def recompute_statistics(job: Job, model: tf.keras.Model, train: Subset, batch_size: int,
                         augment: Augment | None = None) -> None:
    """Replace batch norm's running statistics by plain means over one more pass through the training images.

    The trainable weights do not change. Source: "precise BN" of Wu and Johnson 2021, Rethinking "Batch" in BatchNorm,
    arXiv 2105.07576, section 3.

    Args:
        model: Trained by `fit`.
        train: The training images; each worker passes its shard through the network.
        batch_size: Images per worker and step, as in training.

    Raises:
        LabError: The workers do not hold equal weights afterwards.
    """
    layers = [layer for layer in keras_internals.all_layers(model)
              if isinstance(layer, tf.keras.layers.BatchNormalization)]
    momenta = [layer.momentum for layer in layers]
    epoch, seed = job.config.epochs, job.seed  # The order and augmentation of an epoch that was not trained on.
    mine = shard(train.positions, batch_size, job.rank, job.size, epoch, seed)
    batches = train_batches(train.images, train.labels, mine, augment, epoch=epoch, seed=seed)
    for count, (images, *_) in enumerate(batches.take(MOST_STEPS)):
        for layer in layers:
            layer.momentum = count / (count + 1)  # Batch k has weight 1 / k, so that all have equal weight in the end.
        model(images, training=True)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    # Horovod: each worker has seen its own images; the statistics must be the mean over all workers.
    hvd_ops.average_statistics(model)
    agreement.compare_weights(model, "with recomputed statistics")
