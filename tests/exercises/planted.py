"""Made-up records of each lab, and typical mistakes in answers and functions.

Several workers are four, so that no mistake gives the right figure by chance. The tests in tests/labs grade real runs.
"""

import copy
import dataclasses
import inspect
import itertools
import json
import linecache
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labs import exercises
from labs.exercises import child, code_tasks
from labs.results import run_record
from labs.run import catalogue
from tests.exercises.solved import solution

IMAGES = 1000
NAMES = itertools.count(1)


def made(lab: str, size: int = 1, images_per_sec: float = 100.0, *, epochs: int = 3, metrics: dict | None = None,
         tables: dict | None = None, scores: tuple = (), layout: dict | None = None, **config) -> dict:
    """Return a record as a lab writes it."""
    definition, number = catalogue.load_lab(lab), next(NAMES)
    if "epochs" in definition.Config.__dataclass_fields__:
        config["epochs"] = epochs
    settings = dataclasses.asdict(dataclasses.replace(definition.Config(), **config))
    together = settings["batch_size"] * size
    history = [{"epoch": epoch, "accuracy": 0.3 + 0.1 * epoch, "images": IMAGES, "steps": math.ceil(IMAGES / together),
                "train_seconds": IMAGES / images_per_sec + 7 * (epoch == 1)} for epoch in range(1, epochs + 1)]
    for row, score in zip(history, scores, strict=False):
        row |= {"val_accuracy": score, "val_loss": 2 - score, "val_seconds": 1.5}
    return {
        "format": run_record.FORMAT, "lab": definition.name, "run": f"run{number:04d}-w{size}",
        "started": f"2026-01-01T00:00:{number:04d}", "config": settings,
        "layout": {"size": size, "local_size": size, "nodes": 1, "hosts": ["node"] * size, "threads": 1, "gpus": 0,
                   "backend": "MPI" if size > 1 else "none", "global_batch_size": together} | (layout or {}),
        "versions": {}, "machine": {}, "history": history,
        "timings": {"total_seconds": 9 + sum(row["train_seconds"] for row in history)}
        | run_record.epoch_timings(history),
        "metrics": {"test_accuracy": 0.9} | (metrics or {}), "tables": tables or {},
    }


def write(root: Path, *made_records: dict) -> Path:
    """Write records below a results root."""
    for record in made_records:
        folder = root / record["lab"] / record["run"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "record.json").write_text(json.dumps(record))
    return root


def ledger(compute: float, communication: float, reading: float, other: float) -> dict[str, float]:
    entries = {"compute": compute, "communication": communication, "input": reading, "other": other}
    entries["wall"] = sum(entries.values())
    return {f"ledger_{name}_seconds": seconds for name, seconds in entries.items()}


def allreduce(nbytes: int, seconds: float, library: str = "Horovod over MPI") -> dict:
    return {"collective": "allreduce", "library": library, "bytes": nbytes, "seconds": seconds}


def event(kind: str, seconds: float, steps_lost: int, seconds_lost: float) -> dict:
    return {"kind": kind, "seconds": seconds, "size": 4, "step": 9, "steps_lost": steps_lost,
            "seconds_lost": seconds_lost}


def rounds(method: str, compute: float, step: float) -> list[dict]:
    return [{"round": number, "method": method, "compute_seconds": compute + noise, "step_seconds": step + noise}
            for number, noise in enumerate((0.0, 0.001, -0.0005), 1)]


WIRE = [{"batch_size": size, "steps_per_epoch": math.ceil(IMAGES / (4 * size))} for size in (16, 32, 64)]
KINDS = {"gradients": 9_000_000, "checks: config, data, digests of weights": 30_000, "metrics": 40,
         "initial weights and optimizer state": 500_000, "decisions of rank 0": None}
TRIALS = [{"batch_size": batch, "fits": batch < 300, "peak_mb": 400 + 3.3 * batch} for batch in (64, 128, 256, 512)]
SMALL, VIT = {"parameters": 6_858}, {"parameters": 114_250}
RECORDS = [
    *(made("lab01", images_per_sec=throughput, batch_size=batch, metrics={"cpu_percent": busy})
      for batch, throughput, busy in ((8, 100, 40), (32, 260, 70), (1024, 350, 99), (128, 410, 90))),
    made("lab02", images_per_sec=100), made("lab02", 4, 230),
    made("lab03", scores=(0.3, 0.5, 0.7), batch_size=4, scaling="none", warmup_epochs=0),
    *(made("lab03", 4, scores=(0.2, 0.3, score), scaling=rule, warmup_epochs=climb, metrics={"validation_images": 400})
      for rule, climb, score in (("none", 0, 0.4), ("sqrt", 0, 0.64), ("linear", 0, 0.3), ("linear", 2, 0.61))),
    made("lab04", images_per_sec=100, batch_size=64, metrics=ledger(8, 0, 0.5, 1.5)),
    made("lab04", images_per_sec=80, batch_size=16, metrics=ledger(9, 0, 1, 2)),
    made("lab04", 4, 290, batch_size=64, metrics=ledger(2, 0.6, 0.3, 0.5)),
    made("lab04", 4, 180, batch_size=16, metrics=ledger(2.5, 2, 0.4, 0.6)),
    made("lab05", 4, epochs=0, tables={"collectives": [
        allreduce(8, 1e-4), allreduce(16_000_000, 0.02), allreduce(16_000_000, 0.01, "raw MPI")]}),
    made("lab05", 4, epochs=0, study="traffic", metrics={"gradient_bytes": 986_728}, tables={"wire": WIRE}),
    made("lab05", 4, epochs=1, study="messages", tables={"messages": [
        {"kind": kind, "bytes": count} for kind, count in KINDS.items()]}),
    made("lab06", epochs=0, search="batch_size", tables={"trials": TRIALS}),
    made("lab06", metrics={"parameters": 94_243}), made("lab06", 4, batch_size=16, metrics={"parameters": 94_243}),
    made("lab07", images_per_sec=100, metrics=SMALL, width=16),
    made("lab07", 4, 60, metrics=SMALL, width=16, batch_size=8, traffic=False),
    made("lab07", images_per_sec=100, metrics=VIT), made("lab07", 4, 170, metrics=VIT, batch_size=8, backend="gloo"),
    made("lab08", images_per_sec=100, epochs=5, metrics={"input_images_per_sec": 900}),
    made("lab08", 4, 190, batch_size=4, metrics={"input_images_per_sec": 2000}),
    made("lab08", 4, 310, metrics={"input_images_per_sec": 2000}),
    made("lab09", trials=3), made("lab09", images_per_sec=100), made("lab09", 4, 260, scaling="none"),
    made("lab09", base_lr=0.1, leak_check=False),
    made("lab10", 4, epochs=4, scores=(0.3, 0.6, 0.5, 0.4), validation_split=0.25),
    made("lab11", images_per_sec=90, base_batch_size=20, metrics={"test_accuracy": 0.93, "test_images": 359},
         batch_size=128),
    made("lab11", 4, 280, base_batch_size=20,
         metrics={"test_accuracy": 0.96, "test_images": 359, "allreduce_seconds": 0.07}),
    made("lab12", 4, study="resume", metrics={"steps_lost": 2},
         tables={"events": [event("run ended and resumed", 40, 2, 10.5)]}),
    made("lab12", 4, tables={"events": [event("start", 10.9, 0, 10.9), event("worker lost", 14.7, 3, 0.5),
                                        event("worker joined", 27.5, 0, 9.1)]}),
    made("lab13", 4, epochs=0, metrics={"parameters": 16_330}, tables={"rounds": [
        *rounds("plain", 0.010, 0.014), *rounds("fp16", 0.011, 0.0145), *rounds("SyncBN", 0.013, 0.019)]}),
]
"""What the questions of all labs need, oldest first."""


def of(lab: str) -> list[dict]:
    """Return the records of a lab: "lab04"."""
    return [record for record in RECORDS if record["lab"].startswith(lab)]


def total(run: dict, name: str) -> float:
    """Return a column of the history, summed, for wrong_answers.txt."""
    return sum(row[name] for row in run["history"])


def mistakes(of_what: str) -> list[tuple[str, str, str]]:
    """Return the lines of wrong_answers.txt or wrong_functions.txt: an exercise, the mistake, and words of the hint."""
    lines = (Path(__file__).parent / f"wrong_{of_what}.txt").read_text().splitlines()
    rows = [line.split(" | ") for line in lines if line and not line.startswith("#")]
    return [(first, " | ".join(middle), last) for first, *middle, last in rows]


def change_solution(task: str, change: str) -> Callable:
    """Return the function of solutions/ with a mistake."""
    right = solution(task)
    names = vars(sys.modules[right.__module__]) | {"right": right, "np": np}
    if change.startswith("= "):
        source = f"def {task[6:]}{inspect.signature(right)}:\n    return {change[2:]}\n"
    else:
        old, new = change.removesuffix(" =>").split(" => ") if " => " in change else (change.removesuffix(" =>"), "")
        source = inspect.getsource(right)
        assert old in source, (task, change)
        docstring, code = source.rpartition('"""')[::2]
        source = f'{docstring}"""{code.replace(old, new)}' if old in code else source.replace(old, new)
    exec(source, names)
    return names[task[6:]]


def grade_here(task: str, function: Callable, seed: int = 0) -> str:
    """Return what the grader of a task says of a function that runs in this process."""
    def ask(args: Sequence[Any]) -> dict[str, Any]:
        return child.loads(child.answer_call(function, copy.deepcopy(args)))

    entry = exercises.entries(task[:5])[task]
    return entry.grade(code_tasks.StudentFunction(task[6:], entry.arguments, lambda number: ask,
                                                  np.random.default_rng(seed), function.__doc__ or ""))


def cell(source: str, **names: Any) -> dict[str, Any]:
    """Run a notebook's cell and return its names; Python finds its source as that of IPython's cells."""
    name = f"<cell {next(NAMES)}>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    exec(compile(source, name, "exec"), names)
    return names
