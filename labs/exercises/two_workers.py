"""A train step on two real workers: writes its cell to a file, and runs it with `labs launch`."""

import os
import re
import sys
import tempfile
from pathlib import Path

from labs.exercises import child
from labs.exercises.grading import NoAnswerError, require
from labs.run.paths import ROOT
from labs.run.supervisor import complete

SECONDS = 60
"""The time limit. Two workers need 10 to 15 s on two idle cores, most of it to import TensorFlow."""


def grade_step(cell: str) -> str:
    """Run the train step of a cell on two workers; return what was checked, or raise AssertionError."""
    if re.search(r'"""\s*\.\.\.  # YOUR CODE\s*(\n\S|\Z)', cell):
        raise NoAnswerError("no answer yet: `step` does nothing")
    # A lab that ran in this process has left its settings of Horovod, such as the transport.
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    env["CUDA_VISIBLE_DEVICES"] = "-1"  # NCCL refuses two workers on one GPU.
    launch = [sys.executable, "-m", "labs", "launch", "2", "--oversubscribe", "--stall-seconds", 5]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "step.py")
        path.write_text(cell, encoding="utf-8")
        outcome = complete([*launch, ROOT / "labs/training/step_trial.py", child.__file__, path], SECONDS, env, ROOT)
    require(not outcome.code, outcome.err.rstrip().rpartition("\n")[2].removeprefix("labs: error: "))
    require(outcome.code == 0, f"the steps do not end in {SECONDS} s")
    return "after 3 steps on two real workers their weights are equal, and equal to those of one worker on both batches"
