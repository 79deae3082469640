"""Batch norm's running statistics, recomputed for the weights that the training has ended with.

While a network trains, batch norm normalizes each batch by its own mean and variance; when it is judged, by running
averages over the last steps. Those averages belong to earlier weights. Where few, large steps make up the training,
they lag so far behind that a network which has learnt well is judged badly.
"""

from __future__ import annotations

import tensorflow as tf

from labs.datasets.augment import Augment
from labs.datasets.pipeline import train_batches
from labs.datasets.sharding import shard
from labs.datasets.splits import Subset
from labs.training import agreement, hvd_ops
from labs.training.workers import Job

MOST_STEPS = 200
"""Batches per worker that are enough: the averages hardly change after some thousand images (Wu and Johnson)."""


def recompute_statistics(job: Job, model: tf.keras.Model, train: Subset, batch_size: int,
                         augment: Augment | None = None) -> None:
    """Replace batch norm's running statistics by plain means over one more pass through the training images.

    The trained weights stay as they are. Source: "precise BN" of Wu and Johnson 2021, Rethinking "Batch" in BatchNorm,
    arXiv 2105.07576, section 3.

    Args:
        job: The run.
        model: Trained by `fit`.
        train: The training images; each worker passes its share through the network.
        batch_size: Images per worker and step, as in training.
        augment: How the training images were varied.
    """
    layers = [layer for layer in model.submodules if isinstance(layer, tf.keras.layers.BatchNormalization)]
    momenta = [layer.momentum for layer in layers]
    epoch, seed = job.config.epochs, job.seed  # The order and the variation of an epoch that was not trained on.
    mine = shard(train.positions, batch_size, job.rank, job.size, epoch, seed)
    batches = train_batches(train.images, train.labels, mine, augment, epoch=epoch, seed=seed)
    for count, (images, *_) in enumerate(batches.take(MOST_STEPS)):
        for layer in layers:
            layer.momentum = count / (count + 1)  # Batch k weighs 1 / k: all weigh the same in the end.
        model(images, training=True)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    # Horovod: each worker has seen its own images; the statistics are the mean over all of them.
    hvd_ops.average_statistics(model)
    agreement.compare_weights(model, "with recomputed statistics")
