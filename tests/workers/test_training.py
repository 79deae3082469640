"""Two workers compute what one worker computes; both hold the same weights and take the same steps."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from labs.run import mpirun


@pytest.mark.everyday
def test_two_workers_compute_what_one_computes(tmp_path):
    """Also with micro-batches (`backward_passes_per_step`), and with a quantity as label instead of classes.

    The same launch checks the cases of two workers: any difference in weights is found; means count samples; workers
    of unequal speed take equal steps.
    """
    for size in (1, 2):
        command = [*mpirun.command(size), sys.executable, Path(__file__).parent / "programs/cases.py", tmp_path]
        done = subprocess.run(command, env=mpirun.environment(), capture_output=True, text=True, check=False)
        assert [f"rank {rank}: all cases hold" in done.stdout for rank in range(size)] == [True] * size, done.stderr
    for ours, theirs in (("classes-2", "classes-1"), ("classes-in-pieces", "classes-1"), ("ages-2", "ages-1")):
        two, one = np.load(tmp_path / f"{ours}.npz"), np.load(tmp_path / f"{theirs}.npz")
        assert len(one.files) == 6
        for name in one.files:
            np.testing.assert_allclose(two[name], one[name], rtol=2e-4, atol=2e-6, err_msg=f"{ours} {name}")
