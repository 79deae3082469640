"""As parity.py, for a quantity in the place of classes: squared errors to train on, absolute ones to look at."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import parity
import tensorflow as tf

from labs.datasets.splits import Subset
from labs.run.options import Options
from labs.training import workers
from labs.training.loop import evaluate, fit


def ages(count: int) -> Subset:
    part = parity.pictures(count)
    return dataclasses.replace(part, labels=part.images.mean((1, 2, 3)).astype(np.float32) - 80)


def network() -> tf.keras.Model:
    layers = tf.keras.layers
    return tf.keras.Sequential([
        layers.Input((12, 12, 3), dtype="uint8"), layers.Rescaling(1 / 255), layers.Conv2D(8, 3, activation="relu"),
        layers.Flatten(), layers.Dense(1),
    ])


def main(batch_size: int, results: Path) -> None:
    with workers.start(parity.Config(batch_size), Options(name=f"b{batch_size}", results=results)) as job:
        model = network()
        history = fit(job, model, tf.keras.optimizers.SGD(1e-4, 0.9), ages(150), ages(37), loss="mse",
                      metrics=("mae",), batch_size=batch_size, epochs=2)
        test = evaluate(job, model, ages(37), batch_size)
        errors = model(ages(37).images).numpy()[:, 0] - ages(37).labels
        np.testing.assert_allclose([test["loss"], test["mae"]], [(errors**2).mean(), abs(errors).mean()], rtol=1e-4)
        assert abs(test["mae"] - history[-1]["val_mae"]) < 1e-4
        if job.rank == 0:
            np.savez(results / f"{batch_size}.npz", *model.get_weights(), train=[row["loss"] for row in history],
                     mae=[row["mae"] for row in history])


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
