"""Hand-ins made from the solutions: right ones, and what students change in them."""

import copy
import hashlib
import json
import zipfile
from pathlib import Path

from labs import exercises
from labs.exercises.grading import Question
from labs.results import run_record
from labs.run import catalogue
from labs.run.paths import ROOT
from tests.exercises import planted
from tests.exercises.solved import solution


def signed(record: dict, student: str, **changed) -> dict:
    """Return a record with its owner and its digest."""
    record = {name: value for name, value in record.items() if name != "digest"} | {"student": student} | changed
    return record | {"digest": run_record.digest(record)}


def measured(student: str, lab: str = "lab04") -> list[dict]:
    """Return a student's records of a lab: the planted ones."""
    return [signed(copy.deepcopy(record), student, started=f"2026-11-20T10:{index:02}:00+0000")
            for index, record in enumerate(planted.of(lab))]


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
    """Write a hand-in: the right one, but for what is given; `cell` is that of lab04.excess.

    `notebook` replaces one with the words; `only` leaves the right answers and functions out.
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
