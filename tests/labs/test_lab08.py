"""Lab 8: ages are learned, the control has no input."""

import dataclasses

import numpy as np
import pytest

from labs import lab08_throughput as lab
from labs.datasets import splits
from labs.datasets.synthetic import make_synthetic
from labs.run import fields, local
from tests.exercises.solved import solved

DEMO = lab.PRESETS["demo"]


@pytest.mark.slow
def test_the_shortest_run_on_one_worker_records_what_the_questions_ask_for():
    record = lab.run(dataclasses.replace(DEMO, epochs=2, steps_per_epoch=3, test_split=0.0, input="synthetic"))
    assert [row["images"] for row in record["history"]] == [3 * 16] * 2
    assert {"cpu_percent", "memory_bytes", "input_images_per_sec", "gradient_bytes"} <= set(record["metrics"])
    assert "test_mae" not in record["metrics"], "noise has no test"
    assert not list((fields.Options().results_root / "lab08_throughput").rglob("checkpoints"))
    solved("lab08.q3")


@pytest.mark.workers
def test_two_workers_learn_ages_and_compute_what_one_worker_with_two_threads_computes():
    """A4: 1 x 2 and 2 x 1 divide the same global batch, so only the throughput may differ."""
    record = local.run(lab, dataclasses.replace(DEMO, threads=1, batch_size=8), workers=2)
    alone = local.run(lab, dataclasses.replace(DEMO, threads=2, epochs=2), workers=1)
    for one, two in zip(alone["history"], record["history"], strict=False):
        assert two["learning_rate"] == one["learning_rate"] == pytest.approx(DEMO.base_lr)
        # Equal losses in every step: equal weights, to float tolerance.
        assert (two["loss"], two["mae"]) == pytest.approx((one["loss"], one["mae"]), rel=1e-3)
    faces = splits.from_faces(make_synthetic("imdb_wiki"), 48, DEMO.test_split, 0.0, DEMO.seed)
    ages = faces.test.labels[faces.test.positions]
    guess = np.abs(ages - np.median(faces.train.labels[faces.train.positions])).mean()
    assert record["metrics"]["test_mae"] < 0.8 * guess
