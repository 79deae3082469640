"""Lab 1: MNIST on one worker: its utilization, its number of steps, and the time of a full run.

    labs run lab01_baseline --workers 1
    sbatch jobs/lab01_baseline.sh --preset paper
"""

import dataclasses

from labs import Lab, Options, datasets, fields, main, measure, models, results, training


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 1."""

    data: fields.Mnist = "embedded"
    images: fields.ImageCount = 0
    batch_size: fields.BatchSize = 128
    epochs: fields.Epochs = 8
    base_lr: fields.LearningRate = 0.001
    seed: fields.Seed = 1


PRESETS = {"demo": Config(), "paper": Config(data="real", epochs=40)}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train on one worker, measure its utilization, evaluate on the test images, and return the run's record."""
    import tensorflow as tf

    with training.start(config, options) as job:
        arrays = datasets.read_mnist(datasets.locate("mnist", config.data))
        digits = datasets.from_arrays(arrays, validation_split=0.0, seed=config.seed)
        train = dataclasses.replace(digits.train, positions=digits.train.positions[:config.images or None])
        job.print_once(f"{digits.description}; {len(train)} used for training" if config.images else digits.description)
        model = models.mnist_cnn()
        with measure.Utilization() as busy:
            history = training.fit(
                job, model, tf.keras.optimizers.Adam(config.base_lr), train,
                batch_size=config.batch_size, epochs=config.epochs,
            )
        test = training.evaluate(job, model, digits.test, config.batch_size)
        # Skip the first epoch: TensorFlow traces the model and reads the data in it.
        utilization = busy.summary(skip=history[0]["train_seconds"])
        return results.finish(
            job, history, tables=training.keep_model(job, model, digits, config.batch_size),
            test_accuracy=test["accuracy"], test_loss=test["loss"],
            steps=sum(row["steps"] for row in history), **utilization,
        )


LAB = Lab(Config, PRESETS, run, data_set="mnist", one_worker=lambda config: True)

if __name__ == "__main__":
    main()
