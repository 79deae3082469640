"""What two workers hold and compute, case after case in one launch: `cases.py FOLDER`.

A worker whose assertion fails ends the launch. What several launches are compared by, rank 0 writes into the folder.
"""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from labs.datasets.pipeline import Augment
from labs.datasets.splits import Subset
from labs.run.errors import LabError
from labs.run.fields import BatchSize, Options, Seed
from labs.training import agreement, hvd_ops, loop, workers
from labs.training.loop import evaluate, fit

layers = tf.keras.layers


@dataclasses.dataclass(frozen=True)
class Config:
    batch_size: BatchSize
    seed: Seed = 5


def finding(model: tf.keras.Model, when: str) -> str:
    """Return what the comparison of the workers' weights says; "" if it finds nothing."""
    try:
        agreement.compare_weights(model, when)
    except LabError as problem:
        return str(problem)
    return ""


def differing_weights_are_found(rank: int) -> None:
    model = tf.keras.Sequential([layers.Input((4,)), layers.Dense(3), layers.BatchNormalization(), layers.Dropout(0.5)])
    model.compile(tf.keras.optimizers.Adam())
    model.optimizer.build(model.trainable_variables)
    assert not finding(model, "at the start")
    model.layers[0].kernel.assign_add(tf.one_hot([0, 0, 0, 0], 3) * 1e-7 * rank)
    found = finding(model, "after a nudge of 1e-7")
    assert all(word in found for word in ("after a nudge", "kernel", "rank 1")), found
    hvd_ops.broadcast_state(model)
    assert not finding(model, "after the broadcast")
    model.optimizer.iterations.assign(rank)
    assert "iteration" in finding(model, "with another step count")
    hvd_ops.broadcast_state(model)
    model.layers[1].moving_mean.assign([float(rank), 2.0, 3.0])
    assert "moving_mean" in finding(model, "before averaging statistics")
    hvd_ops.average_statistics(model)
    assert not finding(model, "after averaging statistics")
    assert np.allclose(model.layers[1].moving_mean, [0.5, 2, 3])


def means_count_samples(rank: int) -> None:
    # 3 samples of mean 1 on rank 0, one sample of mean 5 on rank 1: the mean of all is 2, not 3.
    assert hvd_ops.mean_over_workers({"loss": 1.0 + 4 * rank}, 3 - 2 * rank) == {"loss": 2.0}
    # A worker without a sample says nothing, not even "not a number".
    assert hvd_ops.mean_over_workers({"loss": [1.5, float("nan")][rank]}, [2, 0][rank]) == {"loss": 1.5}


def pictures(count: int, ages: bool = False) -> Subset:
    """Return pictures labelled with classes, or with a quantity."""
    images = np.random.default_rng(0).integers(0, 256, (count, 12, 12, 3), dtype=np.uint8)
    means = images.mean((1, 2, 3))
    return Subset(images, means.astype(np.float32) - 80 if ages else means.astype(np.int64) % 5, np.arange(count))


def network(last: tf.keras.layers.Layer) -> tf.keras.Model:
    return tf.keras.Sequential([
        layers.Input((12, 12, 3), dtype="uint8"), layers.Rescaling(1 / 255), layers.Conv2D(8, 3, activation="relu"),
        layers.Flatten(), last,
    ])


def train(folder: Path, name: str, batch_size: int, micro_batches: int = 1, ages: bool = False) -> None:
    """Train with a global batch of 64: two full steps and a last one of 22, with momentum.

    Classes with augmentation; a quantity with the squared error as loss and the absolute error as metric.
    """
    kind = {"loss": "mse", "metrics": ("mae",)} if ages else {"augment": Augment()}
    test = pictures(37, ages)
    with workers.start(Config(batch_size), Options(name=name, results=folder)) as job:
        model = network(layers.Dense(1) if ages else layers.Dense(5, activation="softmax"))
        history = fit(job, model, tf.keras.optimizers.SGD(1e-4 if ages else 0.1, 0.9), pictures(150, ages), test,
                      batch_size=batch_size, epochs=2, backward_passes_per_step=micro_batches, **kind)
        assert all(other == history for other in hvd_ops.gather_object(history)), "the workers' histories differ"
        assert [row["steps"] for row in history] == [3, 3]
        measured = evaluate(job, model, test, batch_size)
        np.testing.assert_allclose(measured["loss"], history[-1]["val_loss"], rtol=1e-6)
        if ages:
            errors = model(test.images).numpy()[:, 0] - test.labels
            np.testing.assert_allclose([measured["loss"], measured["mae"]], [(errors**2).mean(), abs(errors).mean()],
                                       rtol=1e-4)
        if job.rank == 0:
            np.savez(folder / f"{name}.npz", *model.get_weights(), val=[history[-1]["val_loss"]],
                     train=[row["loss"] for row in history])


def unequal_speeds_take_equal_steps(folder: Path) -> None:
    """On its own, one worker would return to Python every few steps, the other never."""
    with workers.start(Config(4), Options(name="pace", results=folder, stall_seconds=15)) as job:
        loop.BETWEEN_CALLBACKS = [0.05, 1e9][job.rank]
        model = network(layers.Dense(5, activation="softmax"))
        fit(job, model, tf.keras.optimizers.SGD(0.01), pictures(320), batch_size=4, epochs=2)
        assert int(model.optimizer.iterations) == 80


def main(folder: Path) -> None:
    layout = workers.init(seed=1)
    train(folder, f"classes-{layout.size}", 64 // layout.size)
    train(folder, f"ages-{layout.size}", 64 // layout.size, ages=True)
    if layout.size == 2:
        assert (layout.nodes, layout.local_size, layout.backend) == (1, 2, "MPI")
        train(folder, "classes-in-pieces", 32, 4)
        differing_weights_are_found(layout.rank)
        means_count_samples(layout.rank)
        unequal_speeds_take_equal_steps(folder)
    print(f"rank {layout.rank}: all cases hold")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
