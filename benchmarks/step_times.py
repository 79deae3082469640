"""Step times of one worker on one core: data/reference/step_times.csv, which docs/speed.md uses.

    python -m benchmarks.step_times FILE

The MNIST CNN of lab 11 takes steps of 32 images, a batch that stays in memory, one step per call, with Adam as `fit`
uses it. `step_seconds` is the time on the clock: run it while nothing else runs. `processor_seconds` is the time on the
processor, which leaves out the waits for a core that other programs use.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks import cases, programs
from benchmarks.contenders.kit import Config
from labs import models
from labs.run import atomic
from labs.run.fields import Options
from labs.training import hvd_ops, keras_internals, loop, workers

BATCH_SIZE = 32
WARMUP, STEPS = 50, 1000
"""Steps that are taken before, and steps that are timed."""


def main(file: Path) -> None:
    import tensorflow as tf  # After the kit, as in a lab.

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with programs.scratch() as folder, workers.start(Config(BATCH_SIZE), Options(name="steps", results=Path(folder))):
        model = models.mnist_cnn()
        # Horovod: one worker exchanges nothing; the wrapper replaces Keras' update by TensorFlow's, as in `fit`.
        optimizer = hvd_ops.distributed_optimizer(tf.keras.optimizers.Adam(0.001))
        loop.compile_for(model, optimizer, "sparse_categorical_crossentropy", ["accuracy"])
        x, y = cases.images(BATCH_SIZE)
        batches = iter(tf.data.Dataset.from_tensors((x, y, np.ones(BATCH_SIZE, np.float32))).repeat())
        times = [timed(model, batches) for _ in range(WARMUP + STEPS)][WARMUP:]
    lines = [f"{clock:.6f},{processor:.6f}" for clock, processor in times]
    atomic.write_text(file, "\n".join(["step_seconds,processor_seconds", *lines, ""]))
    for name, seconds in zip(("clock", "processor"), zip(*times, strict=True), strict=True):
        shown = ", ".join(f"{1e3 * each:.1f}" for each in np.percentile(seconds, [0, 50, 90, 99, 100]))
        print(f"{len(seconds)} steps, {name}, ms (least, median, 90 %, 99 %, most): {shown}")


def timed(model, batches) -> tuple[float, float]:
    """Return the seconds of one step on the clock and on the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    keras_internals.take_steps(model, batches, 1)
    return time.perf_counter() - clock, time.process_time() - processor


if __name__ == "__main__":
    main(Path(sys.argv[1]))
