"""TensorFlow's import in a worker and elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from labs.run import speed_settings
from labs.run.paths import ROOT

COLLECTED = """
import gc
import labs
collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase))
import tensorflow
print(len(collections), gc.isenabled(), gc.get_freeze_count() > 100_000)
"""
SHOW = """
import json, sys
import labs
import tensorflow
found = [name for name in labs.run.speed_settings.UNUSED if name in sys.modules]
import matplotlib, sklearn  # A lab finds them.
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("launched", [{"OMPI_COMM_WORLD_SIZE": "1"}, {"HOROVOD_SIZE": "2"}])
def test_a_worker_imports_tensorflow_without_packages_that_it_does_not_use(launched):
    done = subprocess.run([sys.executable, "-c", SHOW], cwd=ROOT, capture_output=True, text=True, check=False,
                          env=os.environ | launched)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_nothing_is_hidden_where_no_launcher_started_the_process(monkeypatch):
    for name in ("OMPI_COMM_WORLD_SIZE", "HOROVOD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert speed_settings.unused_packages() == ()


@pytest.mark.slow
def test_the_garbage_collector_is_off_while_tensorflow_is_imported():
    done = subprocess.run([sys.executable, "-c", COLLECTED], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "0 True True\n"


@pytest.mark.slow
@pytest.mark.parametrize("program", [
    "import labs, tensorflow",
    "from labs.measure import memory; print(memory.probe(memory.peak_mb).fits)",
], ids=["import", "trial"])
def test_tensorflow_prints_nothing_when_it_is_imported(program):
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == ""
