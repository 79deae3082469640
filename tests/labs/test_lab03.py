"""Lab 3: the learning rate follows the global batch; warmup saves a run that fails without it."""

import dataclasses

import pytest

from labs import lab03_lr_scaling as lab
from labs.pages import lab03 as page
from labs.run import local
from tests.exercises.solved import solved

DEMO = lab.PRESETS["demo"]


@pytest.mark.slow
def test_the_study_records_a_row_per_setting_and_the_miss():
    record = lab.run(dataclasses.replace(lab.PRESETS["rules"], images=512, epochs=1, decay_epoch=0))
    rows, miss = record["tables"]["settings"], record["tables"]["miss"]
    assert [row["updates"] for row in rows if row["scaling"] == "none"] == [64, 32, 16, 8, 4, 2]
    assert {row["epochs"] for row in miss} == {0, 1}
    assert all(row["miss"] < 1e-5 for row in miss if row["k"] == 1)
    assert page.study_table([record], "rules", "sgd")["rule"].nunique() == 5


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
