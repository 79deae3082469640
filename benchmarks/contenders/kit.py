"""The same training through the kit's `fit`: with shards, agreement, digests and checkpoints.

    python -m benchmarks.contenders.kit RESULTS NETWORK steps|epochs      time the steps only, or whole epochs
"""

import dataclasses
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks import cases
from labs.datasets.splits import Subset
from labs.run.fields import BatchSize, Options, Seed, Threads
from labs.training import workers
from labs.training.loop import fit


@dataclasses.dataclass(frozen=True)
class Config:
    batch_size: BatchSize
    threads: Threads = 1
    seed: Seed = 1


def train(name: str, batch_size: int, results: Path, clock: str) -> None:
    import tensorflow as tf  # After the kit, as in a lab.

    with workers.start(Config(batch_size), Options(name=f"{name}-{batch_size}", results=results)) as job:
        steps = cases.STEPS[name] * (cases.LONGER if clock == "epochs" else 1)
        x, y = cases.images(steps * batch_size * job.size)
        train_set = Subset(x, y, np.arange(len(x)))
        ends: list[float] = []
        optimizer = tf.keras.optimizers.SGD(cases.LEARNING_RATE * job.size, cases.MOMENTUM)
        history = fit(job, cases.network(name), optimizer, train_set, batch_size=batch_size, epochs=cases.EPOCHS,
                      stop_when=lambda row: ends.append(time.perf_counter()))
        if job.rank == 0:
            training = sum(row["train_seconds"] for row in history[1:])
            seconds = (training if clock == "steps" else ends[-1] - ends[0]) / (cases.EPOCHS - 1)
            cases.show(f"{name}, batch {batch_size}", len(x) / seconds)


if __name__ == "__main__":
    for batch_size in cases.BATCH_SIZES:
        train(sys.argv[2], batch_size, Path(sys.argv[1]), clock=sys.argv[3])
