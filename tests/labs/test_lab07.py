"""Lab 7: the transports compute the same, and the bytes are those of the parameters."""

import dataclasses

import pytest

from labs import lab07_vit as lab
from labs.run import local
from tests.exercises.solved import solved

TINY = dataclasses.replace(lab.PRESETS["demo"], width=16, depth=1, images=256, epochs=2)


@pytest.mark.workers
@pytest.mark.alone
def test_one_worker_and_two_over_gloo_compute_the_same_and_the_bytes_are_the_parameters():
    one = local.run(lab, TINY, workers=1)
    two = local.run(lab, dataclasses.replace(TINY, batch_size=16, backend="gloo"), workers=2, oversubscribe=True)
    for mine, theirs in zip(one["history"], two["history"], strict=True):
        assert mine["learning_rate"] == pytest.approx(theirs["learning_rate"])
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
    rows, gradients = two["tables"]["wire"], two["metrics"]["gradient_bytes"]
    assert one["tables"]["wire"] == [], "one worker sends nothing"
    assert two["layout"]["backend"] == "Gloo"
    assert gradients == 4 * two["metrics"]["parameters"]
    for row in rows:
        assert row["predicted_bytes_per_step"] == 2 * gradients
        assert abs(row["difference"]) < 0.05
    solved("lab07.q1", "lab07.q2", "lab07.q3")
