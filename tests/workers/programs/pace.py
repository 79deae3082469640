"""Two workers of which each, asked alone, would choose another number of steps per execution."""

import sys
from pathlib import Path

import parity
import tensorflow as tf

from labs.run.options import Options
from labs.training import callbacks, workers
from labs.training.loop import fit

with workers.start(parity.Config(4), Options(name="it", results=Path(sys.argv[1]), stall_seconds=15)) as job:
    callbacks.BETWEEN_CALLBACKS = [0.05, 1e9][job.rank]
    model = parity.network()
    fit(job, model, tf.keras.optimizers.SGD(0.01), parity.pictures(320), batch_size=4, epochs=2)
    print(f"rank {job.rank} took {int(model.optimizer.iterations)} steps")
