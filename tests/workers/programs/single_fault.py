"""A small lab in which one worker goes wrong, as the environment's FAULT says: "RANK KIND"; `fault` has the time."""

import dataclasses
import os
import resource
import signal
import sys
import time
from typing import Literal

from labs.run.catalogue import Lab
from labs.run.fields import BatchSize, Options, Seed
from labs.run.worker import main

EPOCH, STEP = 2, 3


@dataclasses.dataclass(frozen=True)
class Config:
    """What all workers must share."""

    batch_size: BatchSize = 4
    epochs: int = 3
    seed: Seed = 1
    backend: Literal["mpi", "gloo"] | None = None


PRESETS = {"demo": Config()}


def go_wrong(kind: str, model) -> None:
    """Have a fault in the thread that trains; "loops" comes before the heartbeat has reported the step."""
    if kind == "raises":  # A problem that no code expects.
        raise RuntimeError("the pipe has burst\nin two lines")
    if kind == "exits":  # As a script does that believes to be done.
        sys.exit(0)
    elif kind == "vanishes":  # At once and without a sign of failure.
        os._exit(0)
    elif kind == "breaks_down":  # As a library does that calls C's exit.
        os._exit(3)
    elif kind == "is_asked_to_stop":  # By the signal that `labs run` sends for Ctrl-C.
        os.kill(os.getpid(), signal.SIGUSR1)
    elif kind == "computes_nan":
        model.layers[-1].bias.assign([float("nan")] * 10)
    elif kind == "has_no_room":  # As on a full disk, for a checkpoint.
        sys.dont_write_bytecode = True  # Python would cut off the modules that it compiles from now on.
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    elif kind == "allocates":  # More memory than any machine has.
        import tensorflow as tf

        tf.zeros([1 << 47])
    elif kind in ("loops", "dawdles"):
        time.sleep(1e6 if kind == "loops" else 0.05)


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train, with the fault, and return the record."""
    import numpy as np
    import tensorflow as tf

    from labs.datasets.pipeline import Augment
    from labs.datasets.splits import Subset
    from labs.results import run_record
    from labs.run import heartbeat
    from labs.training import workers
    from labs.training.loop import evaluate, fit

    rank, _, kind = os.environ.get("FAULT", "").partition(" ")
    mine = rank == os.environ.get("OMPI_COMM_WORLD_RANK", "0")
    if mine and kind == "other config":
        config = dataclasses.replace(config, seed=2)
    with workers.start(config, options) as job:
        images = np.random.default_rng(0).integers(0, 256, (317, 8, 8, 3), np.uint8)
        if mine and kind == "other data":
            images[7, 3, 2, 1] ^= 1
        if mine and kind == "other versions":
            result = job.folder / "other/numpy-9.9.dist-info/METADATA"
            result.parent.mkdir(parents=True)
            result.write_text("Name: numpy\nVersion: 9.9\n")
            sys.path.insert(0, str(result.parents[1]))
        layers = tf.keras.layers
        model = tf.keras.Sequential([
            layers.Input((8, 8, 3), dtype="uint8"), layers.Rescaling(1 / 255), layers.Conv2D(8, 3),
            layers.BatchNormalization(), layers.ReLU(), layers.Flatten(), layers.Dropout(0.3),
            layers.Dense(10, activation="softmax")])
        if mine and kind == "freezes":
            os.kill(os.getpid(), signal.SIGSTOP)
        if mine:
            _have(kind, model, heartbeat.current(), job.folder / "fault")
        train = Subset(images, np.arange(317) % 10, np.arange(317))
        history = fit(job, model, tf.keras.optimizers.Adam(0.01), train, batch_size=config.batch_size,
                      epochs=config.epochs, augment=Augment(), backward_passes_per_step=2)
        evaluate(job, model, train, config.batch_size)
        if mine and kind == "finishes late":  # As with large curves on a slow file system.
            time.sleep(3 * options.stall_seconds)
        return run_record.finish(job, history) if kind != "keeps no record" else None


def _have(kind: str, model, monitor, note) -> None:
    """Have a fault when the heartbeat reports the given step; `dawdles` is one in each step."""
    tell = monitor.step
    note.write_text(str(time.time()))

    def step(epoch: int, step: int, waited: float = 0.0) -> None:
        is_time = (epoch, step) == (EPOCH, STEP) or kind == "dawdles"
        if not is_time or kind != "loops":
            tell(epoch, step, waited)
        if is_time:
            note.write_text(str(time.time()))
            go_wrong(kind, model)

    monitor.step = step


LAB = Lab(Config, PRESETS, run)

if __name__ == "__main__":
    main()
