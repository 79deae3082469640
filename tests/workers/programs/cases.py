"""What two workers hold and compute, case after case in one launch: `cases.py FOLDER`.

A worker whose assertion fails ends the launch. What several launches are compared by, rank 0 writes into the folder.
"""

import dataclasses
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

from labs.datasets.augment import Augment
from labs.datasets.splits import Subset
from labs.measure import collectives, wire
from labs.run.errors import LabError
from labs.run.fields import BatchSize, Seed
from labs.run.options import Options
from labs.training import agreement, callbacks, hvd_ops, workers
from labs.training.loop import evaluate, fit

layers = tf.keras.layers


@dataclasses.dataclass(frozen=True)
class Config:
    batch_size: BatchSize
    seed: Seed = 5


def finding(action, *arguments, **items) -> str:
    """Return what a check says; "" if it finds nothing."""
    try:
        action(*arguments, **items)
    except LabError as problem:
        return str(problem)
    return ""


def differing_workers_are_found(rank: int) -> None:
    check, compare = agreement.check_same_on_all_workers, agreement.compare_weights
    assert not finding(check, config={"epochs": 3, "seed": 1})
    assert "differ in config: rank 0 has {'epochs': 3}, rank 1 has {'epochs': 4}" in finding(
        check, config={"epochs": 3 + rank, "seed": 1})
    assert "differ in data" in finding(check, data=["a", f"b{rank}"])

    model = tf.keras.Sequential([layers.Input((4,)), layers.Dense(3), layers.BatchNormalization(), layers.Dropout(0.5)])
    model.compile(tf.keras.optimizers.Adam())
    model.optimizer.build(model.trainable_variables)
    assert not finding(compare, model, "at the start")
    model.layers[0].kernel.assign_add(tf.one_hot([0, 0, 0, 0], 3) * 1e-7 * rank)
    found = finding(compare, model, "after a nudge of 1e-7")
    assert "after a nudge" in found
    assert "kernel" in found
    assert "rank 1" in found
    hvd_ops.broadcast_state(model)
    assert not finding(compare, model, "after the broadcast")
    model.optimizer.iterations.assign(rank)
    assert "iteration" in finding(compare, model, "with another step count")
    hvd_ops.broadcast_state(model)
    model.layers[1].moving_mean.assign([float(rank), 2.0, 3.0])
    assert "moving_mean" in finding(compare, model, "before averaging statistics")
    hvd_ops.average_statistics(model)
    assert not finding(compare, model, "after averaging statistics")
    assert np.allclose(model.layers[1].moving_mean, [0.5, 2, 3])

    # 3 samples of mean 1 on rank 0, one sample of mean 5 on rank 1: the mean of all is 2, not 3.
    assert hvd_ops.mean_over_workers({"loss": 1.0 + 4 * rank}, 3 - 2 * rank) == {"loss": 2.0}
    # A worker without a sample says nothing, not even "not a number".
    assert hvd_ops.mean_over_workers({"loss": [1.5, float("nan")][rank]}, [2, 0][rank]) == {"loss": 1.5}


def timed_calls_do_what_they_are_called(rank: int) -> None:
    reduce, _ = collectives.reduction(8)
    assert reduce(tf.fill([3], float(rank + 1))) == 3
    times = collectives.time_in_turns({"slow": lambda: time.sleep(0.02 * rank), "quick": lambda: None}, 0.1)
    assert min(times["slow"]) >= 0.02, "the slowest worker counts, on every worker"
    held = tf.Variable([[1.0, 2.0, 3.0 + rank]])
    assert wire.largest_difference([tf.Variable([5.0]), held]) == 1


def pictures(count: int) -> Subset:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (count, 12, 12, 3), dtype=np.uint8)
    return Subset(images, images.mean((1, 2, 3)).astype(np.int64) % 5, np.arange(count))


def ages(count: int) -> Subset:
    """Return pictures labelled with a quantity instead of classes."""
    part = pictures(count)
    return dataclasses.replace(part, labels=part.images.mean((1, 2, 3)).astype(np.float32) - 80)


def network(last: tf.keras.layers.Layer) -> tf.keras.Model:
    return tf.keras.Sequential([
        layers.Input((12, 12, 3), dtype="uint8"), layers.Rescaling(1 / 255), layers.Conv2D(8, 3, activation="relu"),
        layers.Flatten(), last,
    ])


def train(folder: Path, name: str, batch_size: int, micro_batches: int = 1) -> None:
    """Train with a global batch of 64: two full steps and a last one of 22, with augmentation and momentum."""
    with workers.start(Config(batch_size), Options(name=name, results=folder)) as job:
        model = network(layers.Dense(5, activation="softmax"))
        history = fit(job, model, tf.keras.optimizers.SGD(0.1, 0.9), pictures(150), pictures(37),
                      batch_size=batch_size, epochs=2, augment=Augment(), backward_passes_per_step=micro_batches)
        assert all(other == history for other in hvd_ops.gather_object(history)), "the workers' histories differ"
        test = evaluate(job, model, pictures(37), batch_size)
        assert abs(test["loss"] - history[-1]["val_loss"]) < 1e-6
        assert [row["steps"] for row in history] == [3, 3]
        if job.rank == 0:
            np.savez(folder / f"{name}.npz", *model.get_weights(), val=[history[-1]["val_loss"]],
                     train=[row["loss"] for row in history])


def train_for_ages(folder: Path, name: str, batch_size: int) -> None:
    """Like `train`, with the squared error as loss and the absolute error as metric."""
    with workers.start(Config(batch_size), Options(name=name, results=folder)) as job:
        model = network(layers.Dense(1))
        history = fit(job, model, tf.keras.optimizers.SGD(1e-4, 0.9), ages(150), ages(37), loss="mse",
                      metrics=("mae",), batch_size=batch_size, epochs=2)
        test = evaluate(job, model, ages(37), batch_size)
        errors = model(ages(37).images).numpy()[:, 0] - ages(37).labels
        np.testing.assert_allclose([test["loss"], test["mae"]], [(errors**2).mean(), abs(errors).mean()], rtol=1e-4)
        if job.rank == 0:
            np.savez(folder / f"{name}.npz", *model.get_weights(), train=[row["loss"] for row in history],
                     mae=[row["mae"] for row in history])


def unequal_speeds_take_equal_steps(folder: Path) -> None:
    """On its own, one worker would return to Python every few steps, the other never."""
    with workers.start(Config(4), Options(name="pace", results=folder, stall_seconds=15)) as job:
        callbacks.BETWEEN_CALLBACKS = [0.05, 1e9][job.rank]
        model = network(layers.Dense(5, activation="softmax"))
        fit(job, model, tf.keras.optimizers.SGD(0.01), pictures(320), batch_size=4, epochs=2)
        assert int(model.optimizer.iterations) == 80


def main(folder: Path) -> None:
    layout = workers.init(seed=1)
    train(folder, f"classes-{layout.size}", 64 // layout.size)
    train_for_ages(folder, f"ages-{layout.size}", 64 // layout.size)
    if layout.size == 2:
        assert (layout.nodes, layout.local_size, layout.backend) == (1, 2, "MPI")
        train(folder, "classes-in-pieces", 32, 4)
        differing_workers_are_found(layout.rank)
        timed_calls_do_what_they_are_called(layout.rank)
        unequal_speeds_take_equal_steps(folder)
    print(f"rank {layout.rank}: all cases hold")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
