"""Lab 3: the learning rate follows the global batch; warmup saves a run that fails without it."""

import dataclasses

import pytest

from labs import lab03_lr_scaling as lab
from labs.run import local
from tests.exercises.solved import solved

DEMO = lab.PRESETS["demo"]


@pytest.mark.workers
def test_warmup_saves_what_linear_scaling_alone_breaks():
    """On two workers and on one with the same global batch, which is the same experiment."""
    linear = local.run(lab, DEMO, workers=2, oversubscribe=True)
    sudden = lab.run(dataclasses.replace(DEMO, warmup_epochs=0, batch_size=2 * DEMO.batch_size))
    with_it, without = (record["history"][-1]["val_accuracy"] for record in (linear, sudden))
    assert with_it > 0.5
    assert with_it - without > 0.1
    # The rate depends on the global batch: 32 times base_lr, a tenth of it after the decay.
    assert linear["history"][-1]["learning_rate"] == sudden["history"][-1]["learning_rate"] == pytest.approx(0.0032)
    solved("lab03.q1", "lab03.q2", "lab03.q4")
