"""Lab 0 on real digits."""

from __future__ import annotations

import os

import pytest

from labs import lab00_template as lab
from labs.launch import local
from tests.course.exercises.solved import solved


@pytest.mark.workers
def test_two_workers_learn_what_one_learns(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    runs, cores = [], sorted(os.sched_getaffinity(0))
    try:
        for size in (1, 2):  # Each worker gets the same share of the cores, as in the notebook.
            os.sched_setaffinity(0, cores[:max(1, size * len(cores) // 2)])
            runs.append(local.run(lab.LAB, ["--epochs", "2"], workers=size, oversubscribe=True))
    finally:
        os.sched_setaffinity(0, cores)
    one, two = runs
    assert min(record["metrics"]["test_accuracy"] for record in runs) > 0.8
    assert two["layout"]["global_batch_size"] == 2 * one["layout"]["global_batch_size"]
    solved("lab00.q1", "lab00.q2")
