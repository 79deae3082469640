"""Lab 12: fault tolerance: the cost of a dead worker with checkpoints and with elastic Horovod.

    labs run lab12_elastic --workers 2
    labs run lab12_elastic --workers 2 --study resume
    labs run lab12_elastic --workers 1 --study kills --save-every 0.5
    sbatch --ntasks-per-node=4 jobs/lab12_elastic.sh --preset paper
"""

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
from typing import Annotated, Literal

from labs import Lab, Options, Sweep, datasets, fields, main, measure, models, results, training
from labs.run import atomic, heartbeat, resources, run_lock, terminal


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 12."""

    study: Literal["elastic", "resume", "kills"] = "elastic"
    """"elastic": the other workers continue, and another may join; "resume": the run ends, --resume continues it;
    "kills": a small numpy training run is killed repeatedly and resumed from its last checkpoint."""
    data: fields.Mnist = "embedded"
    batch_size: fields.BatchSize = 64
    epochs: fields.Epochs = 7
    base_lr: fields.LearningRate = 0.001
    scaling: fields.Scaling = "linear"
    commit_steps: Annotated[int, fields.Range(1, 2**20)] = 4
    """Steps between two commits of elastic Horovod, and so the most that it can lose."""
    leave_epoch: Annotated[float, fields.Range(0, 2**20)] = 1.5
    """When a worker is killed, in epochs; 0: never."""
    return_epoch: Annotated[float, fields.Range(0, 2**20)] = 2.5
    """When another worker may join (study elastic), in epochs; 0: never."""
    save_every: Annotated[float, fields.Range(0.001, 2**20)] = 0.12
    """Seconds of steps between two checkpoints (study kills)."""
    mean_life: Annotated[float, fields.Range(0.01, 2**20)] = 1.0
    """Mean seconds from a start to the next kill (study kills)."""
    kills: Annotated[int, fields.Range(1, 2**20)] = 67
    """Number of kills (study kills)."""
    seed: fields.Seed = 1


PRESETS = {
    "demo": Config(),
    "paper": Config(data="real", batch_size=128, epochs=40, commit_steps=50, leave_epoch=10.5, return_epoch=20.5),
}

COMMITS = "F4: what a lost and a joining worker cost, and what a commit costs, against the steps between two commits"
SWEEPS = {
    "demo": (
        Sweep("commits", COMMITS, {"commit_steps": (1, 2, 4, 12), "epochs": (16,), "leave_epoch": (2.5,),
                                   "return_epoch": (4.5,)}, workers=(2,)),
        Sweep("kills", "F4: the share of the clock that kills and checkpoints cost, against the checkpoint interval",
              {"study": ("kills",), "save_every": (0.03, 0.12, 0.5, 2.0)}, workers=(1,)),
    ),
    "paper": (Sweep("commits", COMMITS, {"commit_steps": (1, 10, 50, 250)}, workers=(2, 4)),),
}


def launcher(config: Config, workers: int, folder: Path) -> list[str] | None:
    """Return horovodrun's command for the elastic study; None, which means mpirun, for all other runs."""
    return training.elastic_hosts.horovodrun(workers, folder) if config.study == "elastic" and workers > 1 else None


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train while a worker dies, and return the record, whose table `events` says what was lost."""
    return {"elastic": _elastic, "resume": _resume, "kills": _kills}[config.study](config, options)


def _digits(config: Config):
    return datasets.from_arrays(datasets.read_mnist(datasets.locate("mnist", config.data)), 0.0, config.seed)


def _elastic(config: Config, options: Options):
    """Continue with the remaining workers."""
    import tensorflow as tf

    with contextlib.closing(training.Elastic(config, options, fault)) as worker:
        digits = _digits(config)
        test = worker.train(models.mnist_cnn(), tf.keras.optimizers.Adam(config.base_lr), digits.train, digits.test)
        memory = worker.memory
        tables = {"events": list(memory.events), "progress": list(memory.progress)}
        return _finish(worker.job, list(memory.history), test, tables)


def fault(worker) -> None:
    """Kill a worker at `leave_epoch`, and let it join again at `return_epoch`; called after each step."""
    config = worker.config
    lost = any(event["kind"] == "worker lost" for event in worker.memory.events)
    # Halfway between two commits: a worker that dies at a random moment loses as many steps on average.
    between = min(config.commit_steps, datasets.steps_per_epoch(len(worker.images), config.batch_size, worker.job.size))
    due = config.leave_epoch and worker.done >= config.leave_epoch and 2 * worker.uncommitted >= between
    if training.elastic_hosts.is_leaving() and due and not lost and worker.job.size > 1:
        training.elastic_hosts.write_hosts(worker.folder, worker.job.size - 1, leaving=False)
        os.kill(os.getpid(), signal.SIGKILL)
    due = config.return_epoch and worker.done >= config.return_epoch
    if worker.job.rank == 0 and due and lost and training.elastic_hosts.has_left(worker.folder):
        training.elastic_hosts.write_hosts(worker.folder, worker.job.size, leaving=True)
        worker.job.print_once(f"epoch {worker.state.epoch + 1}: another worker may join")


def _resume(config: Config, options: Options):
    """End the run with the worker that dies; with --resume, continue from the last checkpoint."""
    import tensorflow as tf

    began, process = time.time(), time.time() - resources.process_seconds()
    runs = options.results_root / LAB.name
    # Read before the workers start and overwrite the heartbeats.
    options = run_lock.resumed(LAB.name, options)
    before = _interrupted_run(runs / options.name) if options.resume and options.name else None
    with training.start(config, options) as job:
        digits = _digits(config)
        job.print_once(digits.description)
        steps = datasets.steps_per_epoch(len(digits.train), config.batch_size, job.size)
        progress = before or {"began": began, "events": []}
        if job.rank == 0:
            _save_events(job.folder, progress)
        if before and job.rank == 0:
            _when(lambda beat: beat.epoch, lambda beat: _record_loss(job, progress, beat, steps, process))
        if not options.resume and job.size > 1 and job.rank == job.size - 1 and config.leave_epoch:
            _when(lambda beat: (beat.epoch - 1) * steps + beat.step >= config.leave_epoch * steps,
                  lambda beat: os.kill(os.getpid(), signal.SIGKILL))
        # Horovod: a step of `size` workers trains on `size` times as many images, so the learning rate may grow.
        learning_rate = training.scaled_lr(config.base_lr, job.size, config.scaling)
        model = models.mnist_cnn()
        history = training.fit(
            job, model, tf.keras.optimizers.Adam(learning_rate), digits.train,
            batch_size=config.batch_size, epochs=config.epochs,
        )
        test = training.evaluate(job, model, digits.test, config.batch_size)
        return _finish(job, history, test, {"events": progress["events"]}, wall_seconds=time.time() - progress["began"])


def _kills(config: Config, options: Options):
    """Kill a training in numpy again and again, and return where its seconds went, a row per life."""
    with training.start(config, options) as job:
        digits = _digits(config).train
        lives = measure.kills.study(
            digits.images[digits.positions], digits.labels[digits.positions], save_every=config.save_every,
            mean_life=config.mean_life, kills=config.kills, seed=config.seed)
        rows = [dataclasses.asdict(life) for life in lives]
        seconds = sum(life.life for life in lives)
        return results.finish(job, [], tables={"kills": rows}, wall_seconds=seconds,
                              wasted=1 - sum(life.kept for life in lives) / seconds)


def _interrupted_run(folder: Path) -> dict | None:
    """Return what is left of an interrupted run: its events, its workers' last heartbeats, its checkpoint."""
    if not (folder / "events.json").exists():
        return None
    beats = heartbeat.read_folder(folder / "heartbeats")
    saved = max(([int(number) for number in re.findall(r"\d+", path.stem)] for path in
                 folder.glob("checkpoints/epoch-*.npz")), default=[0])
    # The file of a heartbeat survives SIGKILL; `fit` updates it about five times a second.
    last = max(beats, key=lambda beat: (beat.epoch, beat.step))
    return json.loads((folder / "events.json").read_text()) | {
        "saved": (*saved, 0)[:2], "epoch": last.epoch, "step": last.step,
        "stopped": max(beat.moved for beat in beats)}


def _record_loss(job, progress: dict, beat, steps: int, process: float) -> None:
    """Add the event with the cost of the interruption, after the first step of the resumed run."""
    epochs, more = progress["saved"]
    step = epochs * steps + more
    lost = max(0, (progress["epoch"] - 1) * steps + progress["step"] - step)
    progress["events"].append({"kind": "run ended and resumed", "seconds": beat.moved - progress["began"],
                               "size": job.size, "step": step, "steps_lost": lost,
                               "seconds_lost": beat.moved - progress["stopped"],
                               "seconds_starting": beat.moved - process})
    _save_events(job.folder, progress)


def _save_events(folder: Path, progress: dict) -> None:
    atomic.write_json(folder / "events.json", {name: progress[name] for name in ("began", "events")})


def _when(reached: Callable, act: Callable) -> None:
    """Call `act` with this worker's heartbeat, from a thread, as soon as `reached` returns true for it."""
    def wait() -> None:
        while not reached(heartbeat.current().heartbeat):
            time.sleep(0.005)
        act(heartbeat.current().heartbeat)

    threading.Thread(target=wait, name="labs-fault", daemon=True).start()


def _finish(job, history: list[dict], test: dict, tables: dict, **metrics: float):
    """Print the losses, and return the record."""
    losses = [event for event in tables["events"] if event["kind"] != "start"]
    columns = ("kind", "seconds", "size", "step", "steps_lost", "seconds_lost")
    rows = [[results.tables.figure(event[name]) if name != "kind" else event[name] for name in columns]
            for event in tables["events"]]
    job.print_once("\n" + terminal.table([[name.replace("_", " ") for name in columns], *rows]))
    return results.finish(
        job, history, tables=tables, test_accuracy=test["accuracy"], test_loss=test["loss"],
        steps_lost=sum(event["steps_lost"] for event in losses),
        seconds_lost=sum(event["seconds_lost"] for event in losses), **metrics,
    )


LAB = Lab(Config, PRESETS, run, sweeps=SWEEPS, launcher=launcher, data_set="mnist",
          one_worker=lambda config: config.study == "kills")

if __name__ == "__main__":
    main()
