"""Made-up records. Several workers are four, so that no mistake gives the right figure by chance.

Each lab has a module here with its RECORDS, and with WRONG: a question, a wrong answer as a function of the records and
of the right answer, and words of the hint. The tests in tests/labs grade real runs. `wrong_functions.txt` has typical
mistakes in code.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import itertools
import json
import linecache
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from labs import exercises
from labs.exercises import child, code_tasks
from labs.measure import throughput
from labs.results import records
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
        "format": records.FORMAT, "lab": definition.name, "run": f"run{number:04d}-w{size}",
        "started": f"2026-01-01T00:00:{number:04d}", "config": settings,
        "layout": {"size": size, "local_size": size, "nodes": 1, "hosts": ["node"] * size, "threads": 1, "gpus": 0,
                   "backend": "MPI" if size > 1 else "none", "global_batch_size": together} | (layout or {}),
        "versions": {}, "machine": {}, "history": history,
        "timings": {"total_seconds": 9 + sum(row["train_seconds"] for row in history),
                    "first_epoch_seconds": history[0]["train_seconds"] if history else None,
                    "images_per_sec": throughput.images_per_sec(history),
                    "seconds_per_epoch": throughput.seconds_per_epoch(history)},
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


def totals(runs: list[dict]) -> list[float]:
    return [run["timings"]["total_seconds"] for run in runs]


def grade_here(task: str, function: Callable, seed: int = 0) -> str:
    """Return what the grader of a task says of a function that runs in this process."""
    def ask(args: Sequence[Any]) -> dict[str, Any]:
        return child.loads(child.answer_call(function, copy.deepcopy(args)))

    entry = exercises.entries(task[:5])[task]
    return entry.grade(code_tasks.StudentFunction(task[6:], entry.arguments, ask, np.random.default_rng(seed), ask,
                                                  function.__doc__ or ""))


def wrong_functions() -> list[tuple[str, str, str]]:
    """Return the lines of wrong_functions.txt: a task, a change, and words of the hint."""
    lines = (Path(__file__).parent / "wrong_functions.txt").read_text().splitlines()
    rows = [line.split(" | ") for line in lines if line and not line.startswith("#")]
    return [(row[0], row[1], " | ".join(row[2:])) for row in rows]


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


def cell(source: str, **names: Any) -> dict[str, Any]:
    """Run a notebook's cell and return its names; Python finds its source as that of IPython's cells."""
    name = f"<cell {next(NAMES)}>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    exec(compile(source, name, "exec"), names)
    return names


def of(lab: str) -> ModuleType:
    """Return the module here of a lab."""
    return importlib.import_module(f"tests.exercises.{lab}")


def all_labs() -> list[dict]:
    """Return the records that the questions of all labs need, oldest first."""
    return [record for lab in catalogue.lab_names() for record in of(lab).RECORDS]
