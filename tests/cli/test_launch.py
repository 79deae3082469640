"""`labs launch`: a student's own script on several workers."""

import re
import shutil
import subprocess
import sys

import pytest

from labs.run.paths import ROOT

SCRIPT = """
import os, sys, time
import beside
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
if rank == 0:
    print(__name__, beside.__name__, sys.argv, sys.prefix, flush=True)

def last_step():
    time.sleep(0.5)  # Rank 0 prints first.
    {problem}

if rank == 1:
    last_step()
time.sleep(1000)
"""


def launch(folder, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "labs", "launch", *words], cwd=folder, capture_output=True, text=True,
                          check=False)


@pytest.mark.workers
@pytest.mark.parametrize(("problem", "code", "cause"), [
    ("raise ValueError('no such column')", 1, "ValueError: no such column"),
    ("sys.exit(3)", 3, "exited before the run ended, with sys.exit(3)"),
    ("os.kill(os.getpid(), 11)", 139, "killed by SIGSEGV"),
])
def test_one_worker_that_fails_ends_all_and_is_named(tmp_path, problem, code, cause):
    (tmp_path / "train.py").write_text(SCRIPT.format(problem=problem))
    (tmp_path / "beside.py").touch()
    done = launch(tmp_path, "2", "train.py", "--help", "-n", "")
    assert done.stdout == f"__main__ beside ['train.py', '--help', '-n', ''] {sys.prefix}\n"
    *above, last = done.stderr.splitlines()
    assert last.startswith("labs: error: rank 1 on ")
    assert cause in last
    assert done.returncode == code
    frames = ['  File "train.py", line 13, in <module>', '  File "train.py", line 10, in last_step']
    assert [line for line in above if line.startswith("  File")] == frames * (code == 1)


@pytest.mark.workers
def test_a_frozen_rank_ends_the_script_and_is_named(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT.format(problem="os.kill(os.getpid(), 19)"))
    (tmp_path / "beside.py").touch()
    last = launch(tmp_path, "--stall-seconds", "3", "2", "train.py").stderr.splitlines()[-1]
    assert re.match(r"labs: error: rank 1 on [^ ]+: no progress for \d+ s, the others are waiting", last), last


HANGS = """
from keras import layers
from keras.wrappers import SKLearnClassifier
import sys, numpy as np, keras, beside
import horovod_keras3 as hvd
hvd.init()
SKLearnClassifier(keras.Sequential([layers.Dense(1)]))  # It needs scikit-learn, which a lab hides.
if sys.argv[1] == "shards":
    if hvd.rank() == 0:
        hvd.allreduce(np.ones(3))
    beside.wait(hvd)
elif sys.argv[1] == "epochs":
    for _ in range(2 + hvd.rank()):
        hvd.allreduce(np.ones(1))
else:
    import horovod.tensorflow
    horovod.tensorflow.DistributedOptimizer(keras.optimizers.SGD())
"""


STALLED = r"for another rank \(--stall-seconds\), or a rank has ended; let all ranks take the same number of steps"


@pytest.mark.workers
@pytest.mark.parametrize(("how", "last"), [
    ("shards", rf"rank \d on \S+: waited at (train.py, line 10|beside.py, line 1) {STALLED}"),
    ("epochs", rf"rank 1 on \S+: waited at train.py, line 14 {STALLED}"),
    ("own layer", r"rank 0 on \S+: Horovod's own Keras layer never exchanges a gradient on Keras 3; use .*"),
])
def test_ranks_that_train_wrong_or_wait_for_each_other_end_and_the_cause_is_named(tmp_path, how, last):
    (tmp_path / "train.py").write_text(HANGS)
    (tmp_path / "beside.py").write_text("def wait(hvd): hvd.broadcast(1.0, 0)")
    for package in ("labs", "horovod_keras3"):  # The script may lie in the clone's top folder.
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    done = launch(tmp_path, "--stall-seconds", "4", "2", "train.py", how)
    assert re.fullmatch(f"labs: error: {last}", done.stderr.splitlines()[-1]), done.stderr
    assert done.returncode == 1
