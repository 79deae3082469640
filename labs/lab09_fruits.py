"""Lab 9: a fruit classifier: hyperparameter search on one worker, training on several.

    labs run lab09_fruits --trials 12
    labs run lab09_fruits --workers 2
    labs sweep lab09_fruits
    sbatch jobs/lab09_fruits.sh --preset paper
"""

import dataclasses
import shutil
import warnings
from collections.abc import Callable
from typing import Annotated, Any, Literal

from labs import Lab, LabError, Options, Sweep, datasets, fields, main, models, results, training


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 9."""

    data: str = "embedded"
    """"embedded" (synthetic fruits), "real" (after `labs data fetch fruits360`), or a folder with Training/CLASS and
    Test/CLASS (or train, test), or with a folder per class."""
    image_size: fields.ImageSize = 32
    width: fields.Width = 8
    batch_size: fields.BatchSize = 16
    epochs: fields.Epochs = 8
    base_lr: fields.LearningRate = 0.003
    scaling: fields.Scaling = "linear"
    optimizer: Literal["adam", "sgd"] = "adam"
    momentum: fields.Momentum = 0.9
    validation_split: fields.Share = 0.25
    test_split: fields.TestShare = 0.2
    """Share of all images held out for the test, per class, if the data has no test folder."""
    threads: fields.Threads = 1
    leak_check: bool = True
    """Search for test images that are identical or nearly identical to training images."""
    recompute_statistics: bool = False
    """Evaluate the network again, with batch norm's mean and variance recomputed for its final weights."""
    trials: Annotated[int, fields.Range(0, 2**20)] = 0
    """Trials of a hyperparameter search on one worker; 0: train once, with the values above."""
    seed: fields.Seed = 1


PRESETS = {
    "demo": Config(),
    "paper": Config(data="real", image_size=100, width=32, batch_size=32, epochs=20, base_lr=0.0005, threads=0),
}

JUDGED = {"recompute_statistics": (True,)}
SWEPT_RATES = (1e-4, 5e-4, 5e-3, 2e-2, 1e-1)


def _one_rule(config: Config, workers: int) -> Config:
    """Return a Config with the rule "none" for one worker, whose learning rate no rule changes."""
    return dataclasses.replace(config, scaling="none") if workers == 1 else config


SWEEPS = {
    name: (
        Sweep("workers", "F1, F2: the tuned model on several workers, with a constant and a scaled learning rate",
              {"scaling": ("none", "sqrt", "linear"), **JUDGED}, (1, 2, 4), adapt=_one_rule),
        Sweep("updates", "F1, F2: the same with as many epochs more: at least the updates of one worker",
              {"scaling": ("none",), **JUDGED}, (2, 4),
              adapt=lambda config, workers: dataclasses.replace(config, epochs=config.epochs * workers)),
        Sweep("rates", "F1: learning rates from 0.0001 to 0.1 with either optimizer, on one worker",
              {"base_lr": SWEPT_RATES, "optimizer": ("adam", "sgd"), **JUDGED}, (1,), adapt=_one_rule),
        # Seeds so far apart that no two trials draw alike.
        Sweep("searches", "F0: three searches", {"trials": (24,)}, (1,), seeds=(1, 101, 201)))
    for name in PRESETS
}
SEARCHED = ("base_lr", "optimizer", "batch_size", "width")


def suggest(trial) -> dict[str, Any]:
    """Return the hyperparameters of one of Optuna's trials; this is the search space."""
    return {
        "base_lr": trial.suggest_float("base_lr", 1e-4, 1e-1, log=True),
        "optimizer": trial.suggest_categorical("optimizer", ["adam", "sgd"]),
        "batch_size": trial.suggest_categorical("batch_size", [8, 16, 32]),
        "width": trial.suggest_categorical("width", [4, 8, 16]),
    }


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train, or search with `trials`, and return the record: of the training, or of the search."""
    return search(config, options) if config.trials else train(config, options)


def train(config: Config, options: Options, stop_when: Callable[[dict[str, float]], bool] | None = None):
    """Train on this worker's shard, evaluate on validation and test images, and return the run's record.

    `stop_when` is called after each epoch with its row of the history; True ends the training.
    """
    import tensorflow as tf

    with training.start(config, options) as job:
        root = datasets.locate("fruits360", config.data)
        fruits = datasets.from_tree(root, config.image_size, config.test_split, config.validation_split, config.seed)
        job.print_once(fruits.description)
        # Horovod: a step of `size` workers trains on `size` times as many images, so the learning rate may grow.
        learning_rate = training.scaled_lr(config.base_lr, job.size, config.scaling)
        optimizer = (tf.keras.optimizers.Adam(learning_rate) if config.optimizer == "adam" else
                     tf.keras.optimizers.SGD(learning_rate, config.momentum))
        model = models.photo_cnn(config.image_size, len(fruits.class_names), config.width)
        history = training.fit(
            job, model, optimizer, fruits.train, fruits.validation,
            batch_size=config.batch_size, epochs=config.epochs, augment=datasets.Augment(), stop_when=stop_when,
        )
        test = training.evaluate(job, model, fruits.test, config.batch_size)
        recomputed: dict[str, Any] = {}
        if config.recompute_statistics:
            training.recompute_statistics(job, model, fruits.train, config.batch_size, datasets.Augment())
            recomputed = training.evaluate(job, model, fruits.test, config.batch_size)
        return results.finish(
            job, history, tables=training.keep_model(job, model, fruits, config.batch_size),
            test_accuracy=test["accuracy"], test_loss=test["loss"], test_images=len(fruits.test),
            **{f"test_{name}_recomputed": value for name, value in recomputed.items()},
            **(_leak(fruits) if config.leak_check and job.rank == 0 else {}),
        )


def _leak(fruits) -> dict[str, Any]:
    """Search the training images for test images, print the result, and return the counts."""
    images = fruits.test.images
    seen, test = ([images.paths[index] for subset in subsets for index in subset.positions]
                  for subsets in ((fruits.train, fruits.validation), (fruits.test,)))
    leak = datasets.find_test_leakage(images.root, seen, test)
    print(f"\n{leak}")
    return {"leak_identical": len(leak.identical), "leak_alike": len(leak.alike)}


def search(config: Config, options: Options):
    """Search the hyperparameters by validation accuracy (Optuna: Akiba et al. 2019), and return the search's record.

    The record holds the history and metrics of the best trial, and all trials in the table "trials".

    Every trial is a run in the results folder. An interrupted search that starts again, or one that gets more trials,
    suggests the same values and reads the records of the finished trials. A trial is pruned if its validation accuracy
    is below the median of the earlier trials at the same epoch.
    """
    with warnings.catch_warnings():  # In a notebook tqdm, which Optuna loads, warns of a missing widget.
        warnings.simplefilter("ignore")
        import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(3, n_warmup_steps=2))
    trials = []
    for number in range(config.trials):
        print(f"trial {number + 1} of {config.trials}", flush=True)
        # A new sampler for each trial: its suggestions depend only on the earlier trials and its number.
        study.sampler = optuna.samplers.TPESampler(n_startup_trials=4, seed=config.seed + number)
        trials.append(_trial(study, number, _base(config), options))
        if "data_set" in results.records.computed_on(trials):
            raise LabError("the data has changed since the first trials; choose another --results or --seed")
    best = trials[study.best_trial.number]
    values = {name: best["config"][name] for name in SEARCHED}
    rows = [{"trial": number, **{name: record["config"][name] for name in SEARCHED}, "epochs": len(record["history"]),
             "val_accuracy": record["history"][-1]["val_accuracy"], "best": record is best}
            for number, record in enumerate(trials)]
    print("\n" + _trials_text(rows, values))
    with training.start(dataclasses.replace(config, **values), options) as job:
        return results.finish(job, best["history"], tables={"trials": rows}, **best["metrics"])


def trial_name(config: Config, number: int) -> str:
    """Return the name of the run of one trial of a search."""
    return f"search-{fields.config_hash(_base(config))}-trial{number:03d}"


def _base(config: Config) -> Config:
    """Return the Config that all trials of a search start from."""
    return dataclasses.replace(config, trials=0, leak_check=False)


def _trial(study, number: int, base: Config, options: Options):
    """Run one trial, or read its record, and report the result to the study."""
    from optuna.trial import TrialState

    trial = study.ask()
    config = dataclasses.replace(base, **suggest(trial))
    folder = options.results_root / LAB.name / trial_name(base, number)

    def pruned(row: dict[str, float]) -> bool:
        trial.report(row["val_accuracy"], int(row["epoch"]))
        return trial.should_prune()

    if (folder / "record.json").exists():
        record = results.records.read(folder)
        if record["config"] != dataclasses.asdict(config):
            raise LabError(f"{folder} holds another trial; choose another --results or --seed")
        was_pruned = [pruned(row) for row in record["history"]][-1]
    else:
        shutil.rmtree(folder, ignore_errors=True)  # Left by an interrupted trial.
        record = train(config, Options(folder.name, options.results), pruned)
        was_pruned = trial.should_prune()
    study.tell(trial, None if was_pruned else record["history"][-1]["val_accuracy"],
               state=TrialState.PRUNED if was_pruned else TrialState.COMPLETE)
    return record


def _trials_text(rows: list[dict[str, Any]], values: dict[str, Any]) -> str:
    """Return the trials as text, with the command that trains the best on several workers."""
    import pandas as pd

    table = pd.DataFrame(rows).round({"base_lr": 5, "val_accuracy": 4})
    table["best"] = table["best"].map({True: "*", False: ""})
    options = " ".join(f"--{name.replace('_', '-')} {f'{value:.4g}' if name == 'base_lr' else value}"
                       for name, value in values.items())
    return f"{table.to_string(index=False)}\n\nthe best on several workers: labs sweep {LAB.name} {options}"


LAB = Lab(Config, PRESETS, run, sweeps=SWEEPS, data_set="fruits360",
          one_worker=lambda config: config.trials > 0)

if __name__ == "__main__":
    main()
