"""What two workers compute is what one worker computes."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.everyday
def test_two_workers_compute_what_one_computes(workers, tmp_path):
    """150 images, global batch 64: two full steps and a last one of 22, with augmentation and momentum.

    So they do in pieces (`backward_passes_per_step`), for the memory of 8 images.
    """
    workers("parity.py", 1, 64, tmp_path)
    workers("parity.py", 2, 32, tmp_path)
    workers("parity.py", 2, 32, tmp_path, 4)
    one, *others = (np.load(tmp_path / f"{run}.npz") for run in ("64x1", "32x1", "32x4"))
    assert len(one.files) == 6
    for two in others:
        for name in one.files:
            np.testing.assert_allclose(two[name], one[name], rtol=2e-4, atol=2e-6, err_msg=name)


def test_so_they_do_for_ages(workers, tmp_path):
    """150 images: the last step of an epoch holds 22 and is weighted, without which the losses would differ."""
    workers("parity_ages.py", 1, 64, tmp_path)
    workers("parity_ages.py", 2, 32, tmp_path)
    one, two = (np.load(tmp_path / f"{batch}.npz") for batch in (64, 32))
    for name in one.files:
        np.testing.assert_allclose(two[name], one[name], rtol=2e-4, atol=2e-6, err_msg=name)


@pytest.mark.everyday
def test_workers_that_differ_are_found(workers):
    output = workers("agreement.py", 2).stdout
    result = [line.removeprefix("found: ") for line in output.splitlines() if line.startswith("found: ")]
    assert "rank 0 done, size 2, nodes 1, local_size 2, MPI" in output
    assert result[0] == "nothing"
    assert result[1].startswith("workers differ in config: rank 0 has {'epochs': 3}, rank 1 has {'epochs': 4}")
    assert result[2].startswith("workers differ in data: ")
    assert result[3] == "nothing"
    assert "different weights after a nudge" in result[4]
    assert "kernel" in result[4]
    assert "rank 1" in result[4]
    assert result[5] == "nothing"
    assert "iteration" in result[6]
    assert "moving_mean" in result[7]
    assert result[8] == "nothing"


@pytest.mark.everyday
def test_workers_of_unequal_speed_take_equal_steps(workers, tmp_path):
    """One returns to Python every few steps, the other never: both take 2 x 40 steps."""
    output = workers("pace.py", 2, tmp_path).stdout
    assert "rank 0 took 80 steps" in output
    assert "rank 1 took 80 steps" in output
