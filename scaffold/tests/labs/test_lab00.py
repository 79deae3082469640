"""Lab 0 on real digits."""

from __future__ import annotations

import pytest

from labs import lab00_template as lab
from labs.launch import local
from tests.exercises.solved import solved


@pytest.mark.workers
def test_two_workers_learn_what_one_learns(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    one, two = (local.run(lab.LAB, ["--epochs", "2"], workers=size, oversubscribe=True) for size in (1, 2))
    assert min(record["metrics"]["test_accuracy"] for record in (one, two)) > 0.8
    assert two["layout"]["global_batch_size"] == 2 * one["layout"]["global_batch_size"]
    solved("lab00.q1", "lab00.q2")
