"""Lab 10: how a batch is shared among workers changes nothing, if the network lets it."""

from __future__ import annotations

import dataclasses

import pytest

from labs import lab10_caltech as lab
from labs.launch import local
from labs.run.command_line import to_argv
from labs.run.options import Options


@pytest.mark.workers
def test_two_workers_that_share_a_batch_compute_what_one_computes(tmp_path):
    """Group norm normalizes each image by itself; batch norm would normalize over the images of one worker."""
    config = dataclasses.replace(lab.PRESETS["demo"], norm="group", epochs=1, image_size=16)
    one = lab.run(config, Options(results=tmp_path))
    shared = dataclasses.replace(config, batch_size=config.batch_size // 2, scaling="none")
    half = local.run(lab, [*to_argv(shared), "--results", str(tmp_path)], workers=2, oversubscribe=True)
    here, there = one["history"][0], half["history"][0]
    assert there["steps"] == here["steps"]
    assert there["learning_rate"] == here["learning_rate"]
    assert there["loss"] == pytest.approx(here["loss"], rel=2e-4)
    assert there["val_loss"] == pytest.approx(here["val_loss"], rel=2e-3)
