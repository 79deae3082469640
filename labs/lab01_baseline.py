"""Lab 1: MNIST on one worker: how busy it is, how many steps it takes, how long a full run lasts.

    labs run lab01_baseline --workers 1
    sbatch jobs/lab01_baseline.sh --preset paper
"""

from __future__ import annotations

import dataclasses

from labs.run.errors import LabError
from labs.run.options import Options
from labs.run.worker import main


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 1."""

    data: str = "embedded"
    """"embedded" (1,797 small digits), "real" (after `labs data fetch mnist`) or a folder with mnist.npz."""
    batch_size: int = 128
    """Images per step."""
    epochs: int = 8
    """Passes over the training images."""
    base_lr: float = 0.001
    """Learning rate of Adam."""
    seed: int = 1
    """Of the weights, the order and dropout."""


PRESETS = {"demo": Config(), "paper": Config(data="real", epochs=40)}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train one worker, watch how busy it is, judge on the test images, and return the run's record."""
    import tensorflow as tf

    from labs.datasets import arrays, fetch, splits
    from labs.measure.utilization import Utilization
    from labs.models import cnn
    from labs.report import run_record
    from labs.training import workers
    from labs.training.loop import evaluate, fit

    with workers.start("lab01_baseline", config, options) as job:
        if job.size > 1:
            raise LabError("lab 1 measures one worker; add --workers 1, or take lab02_horovod for several")
        digits = splits.from_arrays(arrays.read_mnist(fetch.locate("mnist", config.data)), 0.0, config.seed)
        job.say(digits.description)
        model = cnn.mnist_cnn()
        with Utilization() as busy:
            history = fit(
                job, model, tf.keras.optimizers.Adam(config.base_lr), digits.train,
                batch_size=config.batch_size, epochs=config.epochs,
            )
        test = evaluate(job, model, digits.test, config.batch_size)
        # The first epoch traces the model and reads the data: it would hide how busy the others are.
        use = busy.summary(skip=history[0]["train_seconds"])
        return run_record.finish(
            job, history, test_accuracy=test["accuracy"], test_loss=test["loss"],
            steps=sum(row["steps"] for row in history), **use,
        )


if __name__ == "__main__":
    main()
