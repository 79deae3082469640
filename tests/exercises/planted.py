"""Made-up records of all labs. Several workers are four, so that no mistake gives the right figure by chance.

The tests in tests/labs grade real runs.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path

from labs.measure import throughput
from labs.results import records
from labs.run import catalogue

IMAGES = 1000
NAMES = itertools.count(1)


def made(lab: str, size: int = 1, rate: float = 100.0, *, epochs: int = 3, metrics: dict | None = None,
         tables: dict | None = None, scores: tuple = (), layout: dict | None = None, **config) -> dict:
    """Return a record as a lab writes it."""
    definition, number = catalogue.load_lab(lab), next(NAMES)
    if "epochs" in definition.Config.__dataclass_fields__:
        config["epochs"] = epochs
    settings = dataclasses.asdict(dataclasses.replace(definition.Config(), **config))
    together = settings["batch_size"] * size
    history = [{"epoch": epoch, "accuracy": 0.3 + 0.1 * epoch, "images": IMAGES, "steps": math.ceil(IMAGES / together),
                "train_seconds": IMAGES / rate + 7 * (epoch == 1)} for epoch in range(1, epochs + 1)]
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
    parts = {"compute": compute, "communication": communication, "input": reading, "other": other}
    return {f"ledger_{name}_seconds": seconds for name, seconds in (parts | {"wall": sum(parts.values())}).items()}


def allreduce(nbytes: int, seconds: float, library: str = "Horovod over MPI") -> dict:
    return {"collective": "allreduce", "library": library, "bytes": nbytes, "seconds": seconds}


def wire(batch_size: int) -> dict:
    return {"batch_size": batch_size, "steps_per_epoch": math.ceil(IMAGES / (4 * batch_size))}


def event(kind: str, seconds: float, steps_lost: int, seconds_lost: float) -> dict:
    return {"kind": kind, "seconds": seconds, "size": 4, "step": 9, "steps_lost": steps_lost,
            "seconds_lost": seconds_lost}


KINDS = {"gradients": 9_000_000, "checks: config, data, digests of weights": 30_000, "metrics": 40,
         "initial weights and optimizer state": 500_000, "decisions of rank 0": None}


def all_labs() -> list[dict]:
    """Return the records that the questions of all labs need, oldest first."""
    messages = [{"kind": kind, "bytes": count} for kind, count in KINDS.items()]
    vit = {"parameters": 114_250}
    trials = [{"batch_size": batch, "fits": batch < 300, "peak_mb": 400 + 3.3 * batch} for batch in (64, 128, 256, 512)]
    return [
        *(made("lab01", rate=rate, batch_size=batch, metrics={"cpu_percent": busy})
          for batch, rate, busy in ((8, 100, 40), (32, 260, 70), (1024, 350, 99), (128, 410, 90))),
        made("lab02", rate=100), made("lab02", 4, 230),
        made("lab03", scores=(0.3, 0.5, 0.7), batch_size=4, scaling="none", warmup_epochs=0),
        *(made("lab03", 4, scores=(0.2, 0.3, score), scaling=rule, warmup_epochs=climb,
               metrics={"validation_images": 400})
          for rule, climb, score in (("none", 0, 0.4), ("sqrt", 0, 0.64), ("linear", 0, 0.3), ("linear", 2, 0.61))),
        made("lab04", rate=100, batch_size=64, metrics=ledger(8, 0, 0.5, 1.5)),
        made("lab04", rate=80, metrics=ledger(9, 0, 1, 2)),
        made("lab04", 4, 290, batch_size=64, metrics=ledger(2, 0.6, 0.3, 0.5)),
        made("lab04", 4, 180, metrics=ledger(2.5, 2, 0.4, 0.6)),
        made("lab05", 4, epochs=0, tables={"collectives": [allreduce(8, 1e-4), allreduce(16_000_000, 0.02),
                                                           allreduce(16_000_000, 0.01, "raw MPI")]}),
        made("lab05", 4, epochs=0, study="traffic", metrics={"gradient_bytes": 986_728},
             tables={"wire": [wire(16), wire(32), wire(64)]}),
        made("lab05", 4, epochs=1, study="messages", tables={"messages": messages}),
        made("lab06", epochs=0, search="batch_size", tables={"trials": trials}),
        made("lab06", metrics={"parameters": 94_243}), made("lab06", 4, batch_size=16, metrics={"parameters": 94_243}),
        made("lab07", rate=100, metrics={"parameters": 6_858}, width=16),
        made("lab07", 4, 60, metrics={"parameters": 6_858}, width=16, batch_size=8, traffic=False),
        made("lab07", rate=100, metrics=vit), made("lab07", 4, 170, metrics=vit, batch_size=8, backend="gloo"),
        made("lab08", rate=100, epochs=5, metrics={"input_images_per_sec": 900}),
        made("lab08", 4, 190, batch_size=4, metrics={"input_images_per_sec": 2000}),
        made("lab08", 4, 310, metrics={"input_images_per_sec": 2000}),
        made("lab09", trials=3), made("lab09", rate=100), made("lab09", 4, 260, scaling="none"),
        made("lab09", base_lr=0.1, leak_check=False),
        made("lab10", 4, epochs=4, scores=(0.3, 0.6, 0.5, 0.4), validation_split=0.25),
        made("lab11", rate=90, base_batch_size=20, metrics={"test_accuracy": 0.93, "test_images": 359}),
        made("lab11", 4, 280, base_batch_size=20,
             metrics={"test_accuracy": 0.96, "test_images": 359, "allreduce_seconds": 0.07}),
        made("lab12", 4, study="resume", metrics={"steps_lost": 2},
             tables={"events": [event("run ended and resumed", 40, 2, 10.5)]}),
        made("lab12", 4, tables={"events": [event("start", 10.9, 0, 10.9), event("worker lost", 14.7, 3, 0.5),
                                            event("worker joined", 27.5, 0, 9.1)]}),
    ]
