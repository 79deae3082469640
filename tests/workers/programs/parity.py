"""Train on some number of workers with one global batch of 64, and save the weights that come out."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from labs.datasets.augment import Augment
from labs.datasets.splits import Subset
from labs.run.fields import BatchSize, Seed
from labs.run.options import Options
from labs.training import hvd_ops, workers
from labs.training.loop import evaluate, fit


@dataclasses.dataclass(frozen=True)
class Config:
    batch_size: BatchSize
    seed: Seed = 5


def pictures(count: int) -> Subset:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (count, 12, 12, 3), dtype=np.uint8)
    return Subset(images, images.mean((1, 2, 3)).astype(np.int64) % 5, np.arange(count))


def network() -> tf.keras.Model:
    layers = tf.keras.layers
    return tf.keras.Sequential([
        layers.Input((12, 12, 3), dtype="uint8"), layers.Rescaling(1 / 255), layers.Conv2D(8, 3, activation="relu"),
        layers.Flatten(), layers.Dense(5, activation="softmax"),
    ])


def main(batch_size: int, results: Path, micro_batches: int = 1) -> None:
    name = f"{batch_size}x{micro_batches}"
    with workers.start(Config(batch_size), Options(name=name, results=results)) as job:
        model = network()
        history = fit(job, model, tf.keras.optimizers.SGD(0.1, 0.9), pictures(150), pictures(37),
                      batch_size=batch_size, epochs=2, augment=Augment(), backward_passes_per_step=micro_batches)
        assert all(other == history for other in hvd_ops.gather_object(history)), "the workers' histories differ"
        test = evaluate(job, model, pictures(37), batch_size)
        assert abs(test["loss"] - history[-1]["val_loss"]) < 1e-6
        if job.rank == 0:
            assert [row["steps"] for row in history] == [3, 3]
            np.savez(results / f"{name}.npz", *model.get_weights(), val=[history[-1]["val_loss"]],
                     train=[row["loss"] for row in history])


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
