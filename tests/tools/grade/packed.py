"""Hand-ins made from the solutions: right ones, and what students change in them."""

import copy
import hashlib
import json
import random
import zipfile
from pathlib import Path

from labs import exercises
from labs.exercises.grading import Question
from labs.results import run_record
from labs.run import catalogue
from labs.run.paths import ROOT
from tests.exercises import planted
from tests.exercises.solved import solution


def signed(record: dict, student: str) -> dict:
    """Return a record with its owner and its digest."""
    record = {name: value for name, value in record.items() if name != "digest"} | {"student": student}
    return record | {"digest": run_record.digest(record)}


def measured(student: str, lab: str = "lab04") -> list[dict]:
    """Return a student's records of a lab: the planted ones, each with clocks that no other run has."""
    made, noise = copy.deepcopy(planted.of(lab)), random.Random(student + lab)
    for index, record in enumerate(made):
        record["started"], history = f"2026-11-20T10:{index:02}:00+0000", record["history"]
        for row in history:
            row["train_seconds"] *= noise.uniform(0.98, 1.02)
        record["timings"] |= {**run_record.epoch_timings(history),
                              "total_seconds": 9.1 * noise.uniform(1, 1.1) + sum(
                                  row["train_seconds"] + row.get("val_seconds", 0) for row in history)}
    return [signed(record, student) for record in made]


def solved(lab: str, runs: list[dict]) -> dict[str, dict]:
    """Return the right answers and functions for some records, as `exercises.check` saves them."""
    source, answers = (ROOT / f"solutions/{catalogue.resolve(lab)}.py").read_text(), {}
    for name, entry in exercises.entries(lab).items():
        if isinstance(entry, Question):
            answers[name] = {"answer": solution(name)(entry.select_runs(runs))}
        else:
            answers[name] = {"cell": source} if entry.arguments else {"answer": solution(name)}
    return answers


def write(folder: Path, student: str, lab: str = "lab04", *, runs: list[dict] | None = None, words: str = "",
          cell: str = "", answers: dict | None = None, created: str = "2026-11-25T12:00:00Z",
          notebook: dict | None = None, only: bool = False) -> Path:
    """Write a hand-in: the right one, but for what is given.

    Args:
        words: A cell of the notebook.
        cell: That of lab04.excess.
        notebook: In place of one with the words.
        only: Without the right answers and functions.
    """
    runs = measured(student, lab) if runs is None else runs
    given = ({} if only or notebook else solved(lab, runs)) | (answers or {})
    given |= {"lab04.excess": {"cell": cell}} if cell else {}
    cells = [{"cell_type": "markdown", "source": words, "metadata": {}}]
    files = {"answers.json": json.dumps(given, default=lambda value: value.tolist()),
             "notebook.ipynb": json.dumps(notebook or {"cells": cells}),
             "records.jsonl": "\n".join(map(json.dumps, runs))}
    manifest = {"format": 2, "lab": catalogue.resolve(lab), "student": student, "created": created,
                "files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}}
    path = folder / f"{catalogue.resolve(lab)}-{student}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in {"manifest.json": json.dumps(manifest), **files}.items():
            archive.writestr(name, text)
    return path
