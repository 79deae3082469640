"""Lab 9: a fruit classifier: search its hyperparameters on one worker, then train it on several.

    labs run lab09_fruits --trials 12
    labs run lab09_fruits --workers 2
    labs sweep lab09_fruits
    sbatch jobs/lab09_fruits.sh --preset paper
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from typing import Any, Literal

from labs.run import naming
from labs.run.errors import LabError
from labs.run.options import Options
from labs.run.sweeps import Sweep
from labs.run.worker import main

LAB = "lab09_fruits"


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 9."""

    data: str = "embedded"
    """"embedded" (drawn fruits), "real" (after `labs data fetch fruits360`), or a folder with Training/CLASS and
    Test/CLASS (or train, test), or with a folder per class."""
    image_size: int = 32
    """Side of the pictures that the network sees, in pixels."""
    width: int = 8
    """Channels of the network's first convolution."""
    batch_size: int = 16
    """Images per worker and step."""
    epochs: int = 8
    """Passes over the training images."""
    base_lr: float = 0.003
    """Learning rate of one worker, before scaling."""
    scaling: Literal["linear", "sqrt", "none"] = "linear"
    """How the learning rate grows with the number of workers; "none" holds it, as the report did."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """What turns gradients into steps."""
    momentum: float = 0.9
    """Momentum of SGD."""
    validation_split: float = 0.25
    """Share of the training images held out for validation, per class; the search goes by them alone."""
    test_split: float = 0.2
    """Share held out for the test, per class, of a tree that brings none of its own."""
    threads: int = 1
    """TensorFlow's threads of one worker; 0: its share of the cores. With 1, a core is to a worker what a GPU is."""
    leak_check: bool = True
    """Look for test pictures that are, or nearly are, training pictures."""
    recompute_statistics: bool = False
    """Judge the trained network a second time, with batch norm's mean and variance recomputed for its final weights."""
    trials: int = 0
    """Search the hyperparameters with so many trials, on one worker; 0: train once, with the values above."""
    seed: int = 1
    """Of the split, the weights, the order and the search."""


PRESETS = {
    "demo": Config(),
    "paper": Config(data="real", image_size=100, width=32, batch_size=32, epochs=20, base_lr=0.0005, threads=0),
}

WHAT = "F1, F2: the tuned model on several workers, the learning rate held and scaled"
SWEEPS = {
    name: (Sweep("workers", WHAT, {"scaling": ("none", "linear"), "recompute_statistics": (True,)}, (1, 2, 4)),)
    for name in PRESETS
}


SEARCHED = ("base_lr", "optimizer", "batch_size", "width")


def suggest(trial) -> dict[str, Any]:
    """Return the values of one trial: what is searched, and where.

    Args:
        trial: Optuna's.
    """
    return {
        "base_lr": trial.suggest_float("base_lr", 1e-4, 1e-1, log=True),
        "optimizer": trial.suggest_categorical("optimizer", ["adam", "sgd"]),
        "batch_size": trial.suggest_categorical("batch_size", [8, 16, 32]),
        "width": trial.suggest_categorical("width", [4, 8, 16]),
    }


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train, or search with `trials`; judge on the test images, and return the record (of the best trial)."""
    return search(config, options) if config.trials else train(config, options)


def train(config: Config, options: Options, stop: Callable[[dict[str, float]], bool] | None = None):
    """Train on this worker's share, judge on validation and test images, and return the run's record.

    Args:
        config: The experiment.
        options: Where the run lives.
        stop: Asked after each epoch with its row; True ends the training.
    """
    import tensorflow as tf

    from labs.datasets import fetch, splits
    from labs.datasets.augment import Augment
    from labs.models import cnn
    from labs.report import run_record
    from labs.results import tables
    from labs.training import batch_norm, schedule, workers
    from labs.training.loop import evaluate, fit

    with workers.start(LAB, config, options) as job:
        root = fetch.locate("fruits360", config.data)
        fruits = splits.from_tree(root, config.image_size, config.test_split, config.validation_split, config.seed)
        job.say(fruits.description)
        # Horovod: `size` workers make one step on `size` times the images, so each step may be longer.
        rate = schedule.scaled_lr(config.base_lr, job.size, config.scaling)
        adam = config.optimizer == "adam"
        model = cnn.photo_cnn(config.image_size, len(fruits.class_names), config.width)
        history = fit(
            job, model, tf.keras.optimizers.Adam(rate) if adam else tf.keras.optimizers.SGD(rate, config.momentum),
            fruits.train, fruits.validation,
            batch_size=config.batch_size, epochs=config.epochs, augment=Augment(), stop_when=stop,
        )
        test = evaluate(job, model, fruits.test, config.batch_size)
        again: dict[str, Any] = {}
        if config.recompute_statistics:
            batch_norm.recompute_statistics(job, model, fruits.train, config.batch_size, Augment())
            again = evaluate(job, model, fruits.test, config.batch_size)
        record = run_record.finish(
            job, history, test_accuracy=test["accuracy"], test_loss=test["loss"], test_images=len(fruits.test),
            **{f"test_{name}_recomputed": value for name, value in again.items()},
            **(_leak(fruits) if config.leak_check and job.rank == 0 else {}),
        )
        if job.rank == 0 and job.size > 1:
            # One worker's learning rate is the same under every scaling rule.
            free = ("scaling", "leak_check", "recompute_statistics")  # They change nothing for one worker's speed.
            print(tables.against_one_worker(record, naming.results_root(options), free))
        return record


def _leak(fruits) -> dict[str, Any]:
    """Look for the test in the training, and tell what is found."""
    from labs.datasets import duplicates

    pictures = fruits.test.images
    learnt, judged = ([pictures.paths[place] for part in parts for place in part.positions]
                      for parts in ((fruits.train, fruits.validation), (fruits.test,)))
    found = duplicates.leak(pictures.root, learnt, judged, show=sys.stderr.isatty())
    print(f"\n{found}")
    return {"leak_identical": len(found.identical), "leak_alike": len(found.alike)}


def search(config: Config, options: Options):
    """Search the hyperparameters by validation accuracy (Optuna: Akiba et al. 2019), and return the search's record.

    It has the history and the figures of the best trial, and the table "trials".

    Every trial is a run in the results store, and the store is the search's only memory: a search that was interrupted,
    or is given more trials, asks the same questions again and finds them answered. A trial whose validation accuracy
    falls below the median of the earlier ones at the same epoch is broken off.

    Raises:
        LabError: There are several workers, or the store holds a trial with other values.
    """
    from tqdm import tqdm

    with warnings.catch_warnings():  # In a notebook tqdm, which Optuna loads, would miss a widget that nobody needs.
        warnings.simplefilter("ignore")
        import optuna

    from labs.report import run_record
    from labs.training import workers

    if int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1)) > 1:
        raise LabError("a search runs on one worker; leave --workers out, and train what it finds on several")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(3, n_warmup_steps=2))
    found = []
    for number in tqdm(range(config.trials), desc="search", unit="trial", file=sys.stderr):
        # A sampler of its own for each trial: what it suggests hangs on the earlier trials and its number alone.
        study.sampler = optuna.samplers.TPESampler(n_startup_trials=4, seed=config.seed + number)
        found.append(_trial(study, number, dataclasses.replace(config, trials=0, leak_check=False), options))
    best = found[study.best_trial.number]
    values = {name: best["config"][name] for name in SEARCHED}
    print("\n" + _told(found, best))
    with workers.start(LAB, dataclasses.replace(config, **values), options) as job:
        return run_record.finish(job, best["history"], tables={"trials": _rows(found, best)}, **best["metrics"])


def _trial(study, number: int, base: Config, options: Options):
    """Run one trial, or read it from the store, and tell the study what came of it."""
    from optuna.trial import TrialState

    from labs.results import records

    trial = study.ask()
    config = dataclasses.replace(base, **suggest(trial))
    folder = naming.results_root(options) / LAB / f"search-{naming.config_hash(base)}-trial{number:03d}"

    def pruned(row: dict[str, float]) -> bool:
        trial.report(row["val_accuracy"], int(row["epoch"]))
        return trial.should_prune()

    if (folder / "record.json").exists():
        record = records.read(folder)
        if record["config"] != dataclasses.asdict(config):
            raise LabError(f"{folder} holds another trial; choose another --results or --seed")
        cut = [pruned(row) for row in record["history"]][-1]
    else:
        shutil.rmtree(folder, ignore_errors=True)  # What an interrupted trial left.
        record = train(config, Options(folder.name, options.results, tensorboard=options.tensorboard), pruned)
        cut = trial.should_prune()
    study.tell(trial, None if cut else record["history"][-1]["val_accuracy"],
               state=TrialState.PRUNED if cut else TrialState.COMPLETE)
    return record


def _rows(found: list, best) -> list[dict[str, Any]]:
    """Return the trials as a table."""
    return [{"trial": number, **{name: record["config"][name] for name in SEARCHED}, "epochs": len(record["history"]),
             "val_accuracy": record["history"][-1]["val_accuracy"], "best": record is best}
            for number, record in enumerate(found)]


def _told(found: list, best) -> str:
    """Return the trials for a terminal, and how to go on with the best."""
    import pandas as pd

    table = pd.DataFrame(_rows(found, best)).round({"base_lr": 5, "val_accuracy": 4})
    table["best"] = table["best"].map({True: "*", False: ""})
    words = " ".join(f"--{name.replace('_', '-')} {best['config'][name]:.4g}" if name == "base_lr" else
                     f"--{name.replace('_', '-')} {best['config'][name]}" for name in SEARCHED)
    return f"{table.to_string(index=False)}\n\nthe best on several workers: labs sweep {LAB} {words}"


if __name__ == "__main__":
    main()
