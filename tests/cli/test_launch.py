"""`labs launch`: a student's own script on several workers."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from labs.run.paths import ROOT

pytestmark = pytest.mark.workers

SCRIPT = """
from keras import layers
from keras.wrappers import SKLearnClassifier
import os, sys, time, numpy as np, keras, beside
import horovod_keras3 as hvd
hvd.init()
SKLearnClassifier(keras.Sequential([layers.Dense(1)]))  # It needs scikit-learn, which a lab hides.
if hvd.rank() == 0:
    print(__name__, beside.__name__, sys.argv[2:], sys.prefix, flush=True)

def last_step():
    {problem}

last_step()
"""


@pytest.mark.parametrize(("problem", "code", "last"), [
    ("hvd.rank() == 0 and time.sleep(1000); raise ValueError('no such column')", 1,
     r"rank 1 on \S+: ValueError: no such column"),
    ("hvd.rank() == 0 and time.sleep(1000); os.kill(os.getpid(), 11)", 139, r"rank 1 on .*killed by SIGSEGV.*"),
    ("hvd.rank() == 0 and hvd.allreduce(np.ones(3)); beside.wait(hvd)", 1,
     r"the ranks have waited for each other for \d+ s \(rank 0 on \S+ \(train.py, line 12\), rank 1 on \S+ "
     r"\(beside.py, line 1\); --stall-seconds\); let all ranks take the same number of steps"),
    ("[hvd.allreduce(np.ones(1)) for _ in range(2 + hvd.rank())]", 1,
     r"rank 1 on \S+: waited at train.py, line 12 for a rank that has ended; let all ranks take the same number of "
     "steps"),
    ("import horovod.tensorflow; horovod.tensorflow.DistributedOptimizer(keras.optimizers.SGD())", 1,
     r"rank 0 on \S+: Horovod's own Keras layer never exchanges a gradient on Keras 3; use .*"),
], ids=["raises", "killed", "unequal exchanges", "unequal epochs", "Horovod's own layer"])
def test_workers_that_fail_train_wrong_or_wait_for_each_other_end_and_the_cause_is_named(tmp_path, problem, code, last):
    (tmp_path / "train.py").write_text(SCRIPT.format(problem=problem))
    (tmp_path / "beside.py").write_text("def wait(hvd): hvd.broadcast(1.0, 0)")
    for package in ("labs", "horovod_keras3"):  # The script may lie in the clone's top folder.
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run([sys.executable, "-m", "labs", "launch", "--stall-seconds", "8", "2", "train.py", "--help",
                           "-n", ""], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == f"__main__ beside ['-n', ''] {sys.prefix}\n"
    *above, error = done.stderr.splitlines()
    assert re.fullmatch(f"labs: error: {last}", error), done.stderr
    assert done.returncode == code
    assert "stall_inspector" not in done.stderr
    if "ValueError" in problem:
        assert [line for line in above if line.startswith("  File")] == [
            '  File "train.py", line 14, in <module>', '  File "train.py", line 12, in last_step']
