"""One worker's start of the kit's `fit`: an epoch of one step.

    python -m benchmarks.contenders.beginning RESULTS NETWORK
"""

import resource
import sys
import time
from pathlib import Path

import numpy as np
import psutil

from benchmarks import cases
from benchmarks.contenders.kit import Config
from labs.datasets.splits import Subset
from labs.run.options import Options
from labs.training import workers
from labs.training.loop import fit


def main(results: Path, name: str) -> None:
    import tensorflow as tf  # After the kit, as in a lab.

    batch_size = max(cases.BATCH_SIZES)
    with workers.start(Config(batch_size), Options(name=name, results=results)) as job:
        x, y = cases.images(batch_size)
        optimizer = tf.keras.optimizers.SGD(cases.LEARNING_RATE, cases.MOMENTUM)
        fit(job, cases.network(name), optimizer, Subset(x, y, np.arange(batch_size)), batch_size=batch_size, epochs=1)
        cases.show(f"{name}, start to first step", time.time() - psutil.Process().create_time())
        cases.show(f"{name}, peak memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
