"""A train step on two real workers: writes its cell to a file, runs it under mpirun, and compares the weights."""

import json
import re
import tempfile
from pathlib import Path

import numpy as np

from labs.exercises import child
from labs.exercises.grading import NoAnswerError, require, shorten
from labs.run import mpirun
from labs.run.paths import ROOT
from labs.run.supervisor import complete

SECONDS = 60
"""The time limit. Two workers need 10 to 15 s on two idle cores, most of it to import TensorFlow."""
EQUAL, SAME_AS_ONE = 1e-6, 1e-5
"""How far the weights of the two workers may be apart, and theirs from those of one worker on both batches."""


def grade_step(cell: str) -> str:
    """Run the train step of a cell on two workers; return what was checked, or raise AssertionError."""
    if re.search(r'"""\s*\.\.\.  # YOUR CODE\s*(\n\S|\Z)', cell):
        raise NoAnswerError("no answer yet: `step` does nothing")
    # A lab that ran in this process has left its settings of Horovod, such as the transport.
    env = {name: value for name, value in mpirun.environment(bar=False).items() if not name.startswith("HOROVOD_")}
    env["CUDA_VISIBLE_DEVICES"] = "-1"  # NCCL refuses two workers on one GPU.
    program = [*mpirun.command(2), *mpirun.PYTHON, ROOT / "labs/training/step_trial.py", child.__file__]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "step.py").write_text(cell, encoding="utf-8")
        outcome = complete([*program, folder], SECONDS, env)
        paths = [folder / f"{rank}.json" for rank in range(2)]
        reports = [json.loads(path.read_text()) if path.exists() else {} for path in paths]
    for rank, report in enumerate(reports):
        if report.get("needs"):
            raise NoAnswerError(report["needs"])
        ended = "Horovod has been shut down"  # Its message on a worker that waits when another one has ended.
        require(ended in (error := report.get("error", ended)), f"rank {rank} of two raised {shorten(error)}")
    waited = outcome.code is None or any("error" in report for report in reports)
    require(all("end" in report for report in reports), (
        "the steps do not end: a rank waits in a collective that the other never calls, or calls in another order (the "
        f"limit is {SECONDS} s; is this machine very busy?)" if waited else f"mpirun {shorten(outcome.cause)}"))
    first, second = ({name: np.array(report[name]) for name in report} for report in reports)
    mine, other, alone = first["end"], second["end"], first["alone"]
    require(np.isfinite([mine, other]).all(), "after 3 steps a weight is not finite")
    require(not np.array_equal(mine, first["start"]), "after 3 steps the weights are still those of the start")
    require(abs(mine - other).max() <= EQUAL, "after 3 steps the two workers hold different weights: the largest "
            f"difference is {abs(mine - other).max():.2g}. Did both apply the same gradients?")
    require(abs(mine - alone).max() <= SAME_AS_ONE, "the two workers agree, but one worker that trains on both batches "
            f"ends at other weights: after 3 steps the largest difference is {abs(mine - alone).max():.2g}. Is what "
            "they apply the mean gradient of all images?")
    return (f"after 3 steps on two real workers their weights are equal (within {EQUAL:g}), and equal to those of one "
            f"worker on both batches (within {SAME_AS_ONE:g})")
