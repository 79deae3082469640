"""The layer on real workers: its cases are in programs/cases.py, and run in one launch."""

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
pytestmark = pytest.mark.workers

CASES = ["".join(names) for names in re.findall(r'^def case_(\w+)|^    "(\w+)": .lambda',
                                                (PROGRAMS / "cases.py").read_text(), re.MULTILINE)]
STALLED = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "20", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "40"}
"""A case in which one worker waits for another ends the program."""


def launch(*words) -> None:
    """Start workers with Horovod's own launcher, which is beside this Python, and expect success."""
    env = os.environ | STALLED | {"PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["horovodrun", *map(str, words)], env=env, capture_output=True, text=True, timeout=900,
                          check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The failures of each case, one per worker that failed."""
    file = tmp_path_factory.mktemp("cases") / "results.json"
    launch("-np", 2, sys.executable, PROGRAMS / "cases.py", ",".join(CASES), file)
    return json.loads(file.read_text())


@pytest.mark.parametrize("case", CASES)
def test_on_several_workers(results, case):
    assert not results[case], "\n".join(results[case])


YOURS = """
import numpy as np
images, labels = np.random.default_rng(1).normal(size=(64, 4)).astype("f"), np.arange(64) % 2
tf.keras.utils.set_random_seed(hvd.rank())
model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(2, "softmax")])
"""
CHECK = """
first, second = hvd.allgather(model.get_weights()[0][None]).numpy()
assert (first == second).all()
"""


def test_the_lines_of_the_readme_train_one_model(tmp_path):
    (lines,) = re.findall("```python\n(.*?)```", (PROGRAMS.parents[1] / "README.md").read_text(), re.DOTALL)
    start, optimizer, rest = lines.partition("optimizer = ")
    (tmp_path / "train.py").write_text(start + YOURS + optimizer + rest + CHECK)
    launch("-np", 2, sys.executable, tmp_path / "train.py")


def test_elastic_training_goes_on_with_one_worker_and_with_two_again(tmp_path):
    """A worker is killed in epoch 2 of 5; the other one goes on from the last commit, until a new one joins it."""
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:1\n127.0.0.1:1\n")  # Two names, since a host that loses a worker loses all of them.
    options = ["-np", 2, "--min-np", 1, "--max-np", 2, "--host-discovery-script", f"cat {shlex.quote(str(hosts))}",
               "--blacklist-cooldown-range", 1, 2,  # Otherwise a host on which a worker failed is excluded for ever.
               "--network-interfaces", "lo",  # Otherwise Horovod looks for a network that two hosts share.
               "--gloo-timeout-seconds", 300]
    launch(*options, sys.executable, PROGRAMS / "elastic.py", tmp_path)
    result = json.loads((tmp_path / "results.json").read_text())
    assert [size for size, _ in itertools.groupby(result["log"], lambda each: each[2])] == [2, 1, 2]
    # Every batch was committed once; the one that was in flight is repeated, and its first try is forgotten.
    expected = [(epoch, batch) for epoch in range(5) for batch in range(1, 7)]
    assert [tuple(each[:2]) for each in result["log"]] == expected
    assert result["iterations"] == 5 * 6
    assert result["equal"]
