"""Costs that grow with the data: a tree of a million files, and a results folder of ten thousand records.

    python -m benchmarks.contenders.growth make|files FOLDER
    python -m benchmarks.contenders.growth memory
"""

import json
import os
import random
import sys
import time
from pathlib import Path

import psutil

from benchmarks.cases import show
from labs.datasets.index import index_folder
from labs.datasets.sharding import shard
from labs.datasets.splits import split_images

CLASSES, FILES, RECORDS = 1000, 1000, 10_000
EPOCHS = (3, 10)


def make(folder: Path) -> None:
    """Create a tree of empty files (an index opens none) and records that vary as in a large study."""
    for number in range(CLASSES):
        class_folder = folder / "tree" / f"{number:03}.class"
        class_folder.mkdir(parents=True)
        for file in range(FILES):
            os.close(os.open(class_folder / f"{number:03}_{file:04}.jpg", os.O_CREAT | os.O_WRONLY))
    make_records(folder / "results", RECORDS)


def make_records(results: Path, count: int) -> None:
    """Create the records of runs on 1, 2, 4 and 8 workers with five batch sizes."""
    for number in range(count):
        size, batch, seed = (1, 2, 4, 8)[number % 4], (32, 64, 128, 256, 512)[number // 4 % 5], number // 20
        run = results / "lab10_caltech" / f"run-{number:05}-w{size}"
        run.mkdir(parents=True)
        (run / "record.json").write_text(json.dumps(record(run.name, size, batch, seed)))


def record(run: str, size: int, batch: int, seed: int) -> dict:
    """Return the record of a run of ten epochs over 51,200 images."""
    steps = 51_200 // (batch * size)
    # No two runs have the same times: `labs lint` would take one for a copy of the other.
    images_per_sec = 400 * size * (0.8 + 0.2 * (seed % 7) / 7) * random.Random(run).uniform(1, 1.001)
    history = [{"epoch": epoch, "steps": steps, "images": 51_200, "loss": 2 / epoch, "accuracy": 1 - 0.9 / epoch,
                "val_loss": 2.1 / epoch, "val_accuracy": 0.95 - 0.9 / epoch, "train_seconds": 51_200 / images_per_sec,
                "val_seconds": 1.0, "lr": 0.01 * size} for epoch in range(1, 11)]
    return {
        "format": 1, "lab": "lab10_caltech", "run": run,
        "started": f"2026-01-01T{seed // 60:02}:{seed % 60:02}:00+0000",
        "config": {"batch_size": batch, "base_lr": 0.01, "epochs": 10, "seed": seed, "threads": 1},
        "layout": {"size": size, "local_size": size, "nodes": 1, "threads": 1, "gpus": 0, "backend": "mpi",
                   "global_batch_size": batch * size},
        "versions": {"tensorflow": "2.21.0", "horovod": "0.28.1"}, "machine": {"host": "node1", "cores": 8},
        "history": history,
        "timings": {"total_seconds": 10 * 51_200 / images_per_sec + 20, "first_epoch_seconds": 51_200 / images_per_sec,
                    "seconds_per_epoch": 51_200 / images_per_sec, "images_per_sec": images_per_sec},
        "metrics": {"test_accuracy": 0.85, "test_loss": 0.5, "test_images": 5000}, "tables": {},
    }


def files(folder: Path) -> None:
    began = time.perf_counter()
    index = index_folder(folder / "tree")
    split = split_images(index, 0.1, 0.1, seed=1)
    shard(split.train, 128, 0, 4, epoch=0, seed=1)
    show("index, split, shard of 1,000,000 files", time.perf_counter() - began)


def memory() -> None:
    """Print the resident memory of this process after some epochs of the pipeline, in MiB."""
    import numpy as np

    from labs.datasets.arrays import align
    from labs.datasets.pipeline import Augment, train_batches

    images, labels = align(np.zeros((4096, 64, 64, 3), np.uint8)), np.zeros(4096, np.int64)
    for epoch in range(max(EPOCHS)):
        for _ in train_batches(images, labels, shard(len(images), 32, 0, 1, epoch, 1), Augment(), epoch=epoch, seed=1):
            pass
        if epoch + 1 in EPOCHS:
            show(f"epoch {epoch + 1}", psutil.Process().memory_info().rss / 2**20)


if __name__ == "__main__":
    if sys.argv[1] == "memory":
        memory()
    else:
        {"make": make, "files": files}[sys.argv[1]](Path(sys.argv[2]))
