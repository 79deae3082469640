"""Lab 12: fault tolerance, and what a dead worker costs with a checkpoint and with elastic Horovod.

    labs run lab12_elastic --workers 2
    labs run lab12_elastic --workers 2 --study resume
    sbatch --ntasks-per-node=4 jobs/lab12_elastic.sh --preset paper
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from labs.run import atomic, naming
from labs.run.options import Options
from labs.run.worker import main

LAB = "lab12_elastic"


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 12."""

    study: Literal["elastic", "resume"] = "elastic"
    """"elastic": the workers that are left go on, and another may come; "resume": the run ends, --resume goes on."""
    data: str = "embedded"
    """"embedded" (1,797 small digits), "real" (after `labs data fetch mnist`) or a folder with mnist.npz."""
    batch_size: int = 64
    """Images per worker and step."""
    epochs: int = 7
    """Passes over the training images."""
    base_lr: float = 0.001
    """Learning rate of one worker's Adam, before scaling."""
    scaling: Literal["linear", "sqrt", "none"] = "linear"
    """How the learning rate grows with the number of workers."""
    commit_steps: int = 4
    """Steps between two commits of elastic Horovod: what it can lose."""
    leave_epoch: float = 1.5
    """When a worker is killed, in epochs; 0: never."""
    return_epoch: float = 2.5
    """When there is room for another worker again (study elastic), in epochs; 0: never."""
    seed: int = 1
    """Of the weights, the order and dropout."""


PRESETS = {
    "demo": Config(),
    "paper": Config(data="real", batch_size=128, epochs=40, commit_steps=50, leave_epoch=10.5, return_epoch=20.5),
}


def launcher(config: Config, workers: int, folder: Path) -> list[str] | None:
    """Return the start of the command line that starts the workers of the elastic study; else mpirun will do."""
    from labs.launch import elastic

    return elastic.horovodrun(workers, folder) if config.study == "elastic" and workers > 1 else None


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train while a worker dies, and return the record: its table `events` says what was lost."""
    return _elastic(config, options) if config.study == "elastic" else _resume(config, options)


def _digits(config: Config):
    from labs.datasets import arrays, fetch, splits

    return splits.from_arrays(arrays.read_mnist(fetch.locate("mnist", config.data)), 0.0, config.seed)


def _elastic(config: Config, options: Options):
    """Go on with the workers that are left."""
    import tensorflow as tf

    from labs.models import cnn
    from labs.training.elastic import Elastic

    with contextlib.closing(Elastic(LAB, config, options, fault)) as worker:
        digits = _digits(config)
        test = worker.train(cnn.mnist_cnn(), tf.keras.optimizers.Adam(config.base_lr), digits.train, digits.test)
        memory = worker.memory
        tables = {"events": list(memory.events), "progress": list(memory.progress), "weights": worker.weights}
        return _finish(worker.job, list(memory.history), test, tables)


def fault(worker) -> None:
    """Kill the loner at `leave_epoch`, and have room for it again at `return_epoch`: called after each step."""
    from labs.launch import elastic

    config = worker.config
    lost = any(event["kind"] == "worker lost" for event in worker.memory.events)
    # In the middle between two commits, where a death finds a run on the average.
    due = config.leave_epoch and worker.done >= config.leave_epoch and 2 * worker.uncommitted >= config.commit_steps
    if elastic.is_loner() and due and not lost and worker.job.size > 1:
        elastic.lose_host(worker.folder)
        os.kill(os.getpid(), signal.SIGKILL)
    due = config.return_epoch and worker.done >= config.return_epoch
    if worker.job.rank == 0 and due and lost and elastic.return_host(worker.folder):
        worker.job.say(f"epoch {worker.state.epoch + 1}: there is room for another worker again")


def _resume(config: Config, options: Options):
    """End with the worker that dies; go on from the last epoch's checkpoint, with --resume."""
    import tensorflow as tf

    from labs.models import cnn
    from labs.training import schedule, workers
    from labs.training.loop import evaluate, fit, steps_per_epoch

    began = time.time()
    runs = naming.results_root(options) / LAB
    # Now: as soon as the workers start, they note their places anew.
    before = _life(runs / naming.run_name(options, runs, 1)) if options.resume else None
    with workers.start(LAB, config, options) as job:
        digits = _digits(config)
        job.say(digits.description)
        steps = steps_per_epoch(len(digits.train), config.batch_size, job.size)
        noted = before or {"began": began, "events": []}
        if job.rank == 0:
            _note(job.folder, noted)
        if before and job.rank == 0:
            _when(lambda place: place.epoch, lambda place: _came_back(job, noted, place, steps))
        if not options.resume and job.size > 1 and job.rank == job.size - 1 and config.leave_epoch:
            _when(lambda place: (place.epoch - 1) * steps + place.step >= config.leave_epoch * steps, _die)
        # Horovod: `size` workers make one step on `size` times the images, so each step may be longer.
        rate = schedule.scaled_lr(config.base_lr, job.size, config.scaling)
        model = cnn.mnist_cnn()
        history = fit(job, model, tf.keras.optimizers.Adam(rate), digits.train,
                      batch_size=config.batch_size, epochs=config.epochs)
        test = evaluate(job, model, digits.test, config.batch_size)
        return _finish(job, history, test, {"events": noted["events"]})


def _life(folder: Path) -> dict | None:
    """Return what is known of a run that has ended early: its events, its workers' last places, its checkpoint."""
    from labs.run import heartbeat

    if not (folder / "events.json").exists():
        return None
    beats = heartbeat.read_beats(folder / "heartbeats") or heartbeat.read_beats(folder / "places")  # Of older versions.
    saved = max(([int(number) for number in re.findall(r"\d+", path.stem)] for path in
                 folder.glob("checkpoints/epoch-*.npz")), default=[0])
    # What was noted outlives even SIGKILL; `fit` comes back to note it about five times a second.
    last = max(beats, key=lambda beat: (beat.epoch, beat.step))
    return json.loads((folder / "events.json").read_text()) | {
        "saved": (*saved, 0)[:2], "epoch": last.epoch, "step": last.step,
        "stopped": max(beat.moved for beat in beats)}


def _came_back(job, noted: dict, place, steps: int) -> None:
    """Note what the end of the run before this one has cost, now that the first step of this one is done."""
    epochs, more = noted["saved"]
    step = epochs * steps + more
    lost = max(0, (noted["epoch"] - 1) * steps + noted["step"] - step)
    noted["events"].append({"kind": "run ended and resumed", "seconds": place.moved - noted["began"],
                            "size": job.size, "step": step, "steps_lost": lost,
                            "seconds_lost": place.moved - noted["stopped"]})
    _note(job.folder, noted)


def _note(folder: Path, noted: dict) -> None:
    atomic.write_json(folder / "events.json", {name: noted[name] for name in ("began", "events")})


def _when(reached: Callable, act: Callable) -> None:
    """Call `act` with this worker's place, from a thread, as soon as the place is one that is waited for."""
    from labs.run import heartbeat

    def wait() -> None:
        while not reached(heartbeat.current().beat):
            time.sleep(0.005)
        act(heartbeat.current().beat)

    threading.Thread(target=wait, name="labs-fault", daemon=True).start()


def _die(_) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _finish(job, history: list[dict], test: dict, tables: dict):
    """Print what was lost, and return the record."""
    from labs.report import run_record
    from labs.results import tables as text

    losses = [event for event in tables["events"] if event["kind"] != "start"]
    columns = ("kind", "seconds", "size", "step", "steps_lost", "seconds_lost")
    rows = [[text.figure(event[name]) if name != "kind" else event[name] for name in columns]
            for event in tables["events"]]
    job.say("\n" + text.text([[name.replace("_", " ") for name in columns], *rows]))
    return run_record.finish(job, history, tables=tables, test_accuracy=test["accuracy"], test_loss=test["loss"],
                          steps_lost=sum(event["steps_lost"] for event in losses),
                          seconds_lost=sum(event["seconds_lost"] for event in losses))


if __name__ == "__main__":
    main()
