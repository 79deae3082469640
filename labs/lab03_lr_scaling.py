"""Lab 3: how the learning rate should change when the batch grows: scaling rules and warmup.

    labs run lab03_lr_scaling --workers 2
    labs sweep lab03_lr_scaling --preset rules
    sbatch --gpus-per-node=4 --ntasks-per-node=4 jobs/lab03_lr_scaling.sh --preset paper
"""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from labs import Lab, Options, Sweep, datasets, fields, main, measure, models, results, training


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 3."""

    study: Literal["training", "rules", "search"] = "training"
    """"training" (the other options), "rules" (all rules at all batches, one after the other, on a narrow cifar_cnn
    with base_batch_size, all images for training, and the test images held out) or "search" (its learning rates)."""
    data: fields.Cifar10 = "embedded"
    model: Literal["cifar_cnn", "cifar_cnn_bn", "resnet18"] = "cifar_cnn"
    images: fields.ImageCount = 0
    batch_size: fields.BatchSize = 64
    epochs: fields.Epochs = 7
    base_lr: fields.LearningRate = 0.001
    """Learning rate for base_batch_size images per step."""
    base_batch_size: fields.BaseBatchSize = 4
    scaling: fields.Scaling = "linear"
    warmup_epochs: fields.WarmupEpochs = 3
    decay_epoch: Annotated[float, fields.Range(0, 2**20)] = 5
    """Epochs after which the learning rate is divided by ten; 0: never."""
    optimizer: Literal["adam", "sgd"] = "adam"
    momentum: fields.Momentum = 0.9
    validation_split: fields.Share = 0.2
    augment: bool = False
    """Flip and shift the training images."""
    seed: fields.Seed = 1


PRESETS = {
    "demo": Config(),
    # Report C4.1: 4 GPUs with batch 512 against one with 128, five epochs; k = 16.
    "paper": Config(
        data="real", model="resnet18", batch_size=512, epochs=5, base_lr=0.1, base_batch_size=128, warmup_epochs=2,
        decay_epoch=4, optimizer="sgd", validation_split=0.1, augment=True,
    ),
    # The same experiment on two cores, with fewer images and a small network: ResNet-18 takes hours.
    "laptop": Config(
        data="real", model="cifar_cnn_bn", images=30_000, batch_size=512, epochs=5, base_lr=0.03, base_batch_size=128,
        warmup_epochs=2, decay_epoch=4, optimizer="sgd", validation_split=0.1,
    ),
    # C4.1, C4.2, M5: one process with k batches stands for k workers. base_lr is the best of the study "search".
    "rules": Config(
        study="rules", batch_size=8, epochs=5, base_lr=0.01, base_batch_size=8, warmup_epochs=1, decay_epoch=4,
        optimizer="sgd", validation_split=0.0,
    ),
}
ADAM_LR = 0.004  # The base_lr of the preset "rules" with Adam, from its own search.
# The values of k in the study "rules", and the learning rates of the study "search".
FACTORS = {"sgd": (1, 2, 4, 8, 16, 32), "adam": (1, 2, 8, 32)}
SEARCHED = {"sgd": (0.0025, 0.005, 0.01, 0.02, 0.04), "adam": (0.0005, 0.001, 0.002, 0.004, 0.008)}
NARROW = {"width": 8, "units": 64}  # Channels of the first convolution, and units of the hidden layer, of both studies.
MISS_FACTORS, MISS_EPOCHS, MISS_REPEATS = (1, 2, 4, 8, 16, 32), (0, 1, 3), 5
"""The k of the large step whose miss is measured; after how many epochs at k = 1; from how many draws of images."""

C4_1 = "C4.1: loss and accuracy after five epochs, one worker with batch 128 against four with 512 each"
C4_2 = "C4.2, M5: accuracy over the batch, for each rule with and without warmup; "
_SMALL = {"batch_size": (128,), "scaling": ("none",), "warmup_epochs": (0,)}
_C4_1 = (
    Sweep("search", "C4.1: the learning rate that is right for the small batch",
          {**_SMALL, "base_lr": (0.01, 0.03, 0.1, 0.3)}, workers=(1,), seeds=(1,)),
    Sweep("small_batch", "C4.1: the small batch", _SMALL, workers=(1,)),
    Sweep("rules", C4_1, {"scaling": ("none", "sqrt", "linear"), "warmup_epochs": (0,)}, workers=(4,)),
    Sweep("warmup", C4_1, workers=(4,)),
)
_ADAM, _OWN_SEEDS = {"optimizer": ("adam",), "base_lr": (ADAM_LR,)}, tuple(range(11, 16))
SWEEPS = {
    "demo": (Sweep("warmup", "C4.2: linear scaling with and without warmup", {"warmup_epochs": (0, 3)}, workers=(2,)),),
    "paper": _C4_1,
    "laptop": _C4_1,
    "rules": (
        Sweep("search", C4_2 + "the search at k = 1", {"study": ("search",)}, (1,), _OWN_SEEDS),
        Sweep("search_adam", C4_2 + "Adam's search", {"study": ("search",), **_ADAM}, (1,), _OWN_SEEDS),
        Sweep("rules", C4_2 + "SGD with momentum", {}, (1,), (1, 2, 3, 4, 5)),
        Sweep("rules_adam", C4_2 + "Adam", _ADAM, (1,), (1, 2, 3, 4, 5)),
    ),
}


def learning_rate(config: Config, images: int, size: int):
    """Return the learning rate as a function of the step, for a number of training images and of workers."""
    # Horovod: a step trains on the images of all workers; the learning rate must suit the number of images.
    k = config.batch_size * size / config.base_batch_size
    peak = training.scaled_lr(config.base_lr, k, config.scaling)
    steps = datasets.steps_per_epoch(images, config.batch_size, size)
    falls = (int(config.decay_epoch * steps),) if config.decay_epoch else ()
    return training.Warmup(config.base_lr, peak, int(config.warmup_epochs * steps), falls)


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train with a scaled learning rate, evaluate on validation and test images, and return the run's record."""
    import tensorflow as tf

    with training.start(config, options) as job:
        arrays = datasets.read_cifar10(datasets.locate("cifar10", config.data))
        kept = slice(config.images or None)
        arrays = dataclasses.replace(arrays, train_images=arrays.train_images[kept],
                                     train_labels=arrays.train_labels[kept])
        if config.study != "training":
            return _study(job, arrays)
        images = datasets.from_arrays(arrays, config.validation_split, config.seed)
        job.print_once(images.description)

        schedule = learning_rate(config, len(images.train), job.size)
        after = f" in the first step, {schedule.peak:.4g} after the warmup" if config.warmup_epochs else ""
        job.print_once(f"k = {config.batch_size * job.size} / {config.base_batch_size}, scaling {config.scaling}: "
                       f"learning rate {float(schedule(0)):.4g}{after}")
        model = getattr(models, config.model)(len(images.class_names))
        optimizer = (tf.keras.optimizers.Adam(schedule) if config.optimizer == "adam" else
                     tf.keras.optimizers.SGD(schedule, config.momentum))
        history = training.fit(
            job, model, optimizer, images.train, images.validation,
            batch_size=config.batch_size, epochs=config.epochs, augment=datasets.Augment() if config.augment else None,
        )
        test = training.evaluate(job, model, images.test, config.batch_size)
        return results.finish(job, history, tables=training.keep_model(job, model, images, config.batch_size),
                              test_accuracy=test["accuracy"], test_loss=test["loss"],
                              validation_images=len(images.validation))


def settings(config: Config) -> Iterator[Config]:
    """Yield the settings of a study, each as the Config of one process with the batch of all its workers.

    At k = 1 all rules are one setting, and a rule that scales nothing has nothing to warm up to.
    """
    small = dataclasses.replace(config, batch_size=config.base_batch_size, scaling="none", warmup_epochs=0.0)
    if config.study == "search":
        yield from (dataclasses.replace(small, base_lr=base_lr) for base_lr in SEARCHED[config.optimizer])
        return
    yield small
    for k in FACTORS[config.optimizer][1:]:
        large = dataclasses.replace(small, batch_size=k * config.base_batch_size)
        yield large
        for scaling in ("sqrt", "linear"):
            for warmup_epochs in (0.0, config.warmup_epochs):
                yield dataclasses.replace(large, scaling=scaling, warmup_epochs=warmup_epochs)


def _study(job, arrays):
    """Train all settings of a study, one after the other, from the same weights, and return the run's record."""
    config, n = job.config, len(arrays.train_images)
    rows: list[dict[str, Any]] = []
    misses: list[dict[str, float]] = []
    model = models.cifar_cnn(len(arrays.class_names), **NARROW)
    trainer = measure.large_batches.Trainer(model, arrays, config.optimizer, config.momentum)

    def measure_miss(epochs: int) -> None:
        """Measure the miss in the first training of the study "rules", SGD's at k = 1."""
        measured = not rows and config.study == "rules" and config.optimizer == "sgd" and epochs in MISS_EPOCHS
        for repeat in range(MISS_REPEATS if measured else 0):
            batches = datasets.shard(n, config.base_batch_size, 0, 1, repeat, config.seed + 1000).rows
            # As long a step as the velocity makes of the learning rate, 1 + momentum + momentum^2 + ...
            shares = trainer.measure_misses(batches, config.base_lr / (1 - config.momentum), MISS_FACTORS)
            misses.extend({"epochs": epochs, "repeat": repeat, "k": k, "miss": share}
                          for k, share in zip(MISS_FACTORS, shares, strict=True))

    for each in settings(config):
        steps = config.epochs * datasets.steps_per_epoch(n, each.batch_size, 1)
        rates = [float(rate) for rate in learning_rate(each, n, 1)(list(range(steps)))]
        row = trainer.train(each.batch_size, rates, config.epochs, config.seed, measure_miss)
        rows.append({"k": each.batch_size // config.base_batch_size, "batch_size": each.batch_size,
                     "scaling": each.scaling, "warmup_epochs": each.warmup_epochs, "base_lr": each.base_lr,
                     "peak": max(rates), **row})
        job.print_once("k = {k:2}, {scaling:6}, warmup {warmup_epochs:g}, peak {peak:.4g}: {updates} updates, held-out "
                       "accuracy {val_accuracy:.3f}, dead ReLUs {dead:.0%}, {seconds:.1f} s".format(**rows[-1]))
    return results.finish(job, [], tables={"settings": rows, "miss": misses}, train_images=n,
                          validation_images=len(arrays.test_images))


LAB = Lab(Config, PRESETS, run, sweeps=SWEEPS, data_set="cifar10",
          one_worker=lambda config: config.study != "training")

if __name__ == "__main__":
    main()
