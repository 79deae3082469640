"""Lab 0: template.

    labs run lab00_template --workers 2
    sbatch jobs/lab00_template.sh --preset paper
"""

from __future__ import annotations

import dataclasses

from labs import Lab, Options, datasets, fields, main, models, results, training


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 0."""

    data: str = "embedded"
    """"embedded" (1,797 small digits), "real" (after `labs data fetch mnist`) or a folder with mnist.npz."""
    batch_size: fields.BatchSize = 32
    """Images per worker and step."""
    epochs: fields.Epochs = 4
    """Passes over the training images."""
    base_lr: fields.LearningRate = 0.001
    """Learning rate of one worker's Adam, before scaling."""
    scaling: fields.Scaling = "linear"
    """How the learning rate grows with the number of workers."""
    seed: fields.Seed = 1
    """Seed of the weights, the order of the images, and dropout."""


PRESETS = {"demo": Config(), "paper": Config(data="real", batch_size=128, epochs=40)}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train on this worker's shard, evaluate on the test images, and return the run's record."""
    # TensorFlow is imported here and not above, so that `labs list` and `--help` answer at once.
    import tensorflow as tf

    with training.start(config, options) as job:
        digits = datasets.from_arrays(datasets.read_mnist(datasets.locate("mnist", config.data)), 0.0, config.seed)
        job.print_once(digits.description)
        model = models.mnist_cnn()
        # Horovod: a step of `size` workers trains on `size` times as many images, so the learning rate may grow.
        optimizer = tf.keras.optimizers.Adam(training.scaled_lr(config.base_lr, job.size, config.scaling))
        history = training.fit(job, model, optimizer, digits.train, batch_size=config.batch_size, epochs=config.epochs)
        test = training.evaluate(job, model, digits.test, config.batch_size)
        return results.finish(job, history, test_accuracy=test["accuracy"], test_loss=test["loss"])


LAB = Lab(Config, PRESETS, run, data_set="mnist")

if __name__ == "__main__":
    main()
