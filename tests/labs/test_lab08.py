"""Lab 8: ages are learned, on any layout."""

import dataclasses

import numpy as np
import pytest

from labs import lab08_throughput as lab
from labs.datasets import locate, splits
from labs.run import local

DEMO = lab.PRESETS["demo"]


@pytest.mark.workers
def test_two_workers_learn_ages_and_compute_what_one_worker_with_two_threads_computes():
    """A4: 1 x 2 and 2 x 1 divide the same global batch, so only the throughput may differ."""
    record = local.run(lab, dataclasses.replace(DEMO, threads=1, batch_size=8), workers=2)
    alone = local.run(lab, dataclasses.replace(DEMO, threads=2, epochs=2), workers=1)
    for one, two in zip(alone["history"], record["history"], strict=False):
        assert two["learning_rate"] == one["learning_rate"] == pytest.approx(DEMO.base_lr)
        # Equal losses in every step: equal weights, to float tolerance.
        assert (two["loss"], two["mae"]) == pytest.approx((one["loss"], one["mae"]), rel=1e-3)
    faces = splits.from_faces(locate("imdb_wiki", "embedded"), 48, DEMO.test_split, 0.0, DEMO.seed)
    ages = faces.test.labels[faces.test.positions]
    guess = np.abs(ages - np.median(faces.train.labels[faces.train.positions])).mean()
    assert record["metrics"]["test_mae"] < 0.8 * guess
