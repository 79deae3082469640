"""TensorFlow's import in a worker: silent, without unused packages, without the garbage collector."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from labs.run import speed_settings
from labs.run.paths import ROOT

PROGRAM = """
import gc, json, sys
import labs
collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase))
import tensorflow
state = [name for name in labs.run.speed_settings.UNUSED if name in sys.modules], len(collections), gc.isenabled()
import matplotlib, sklearn  # A lab finds them.
print(json.dumps(state))
"""


@pytest.mark.slow
@pytest.mark.parametrize("launched", [{"OMPI_COMM_WORLD_SIZE": "1"}, {"HOROVOD_SIZE": "2"}])
def test_a_workers_import_of_tensorflow(launched):
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False,
                          env=os.environ | launched)
    assert done.stderr == ""
    assert json.loads(done.stdout) == [[], 0, True]


def test_nothing_is_hidden_where_no_launcher_started_the_process(monkeypatch):
    for name in ("OMPI_COMM_WORLD_SIZE", "HOROVOD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert speed_settings.unused_packages() == ()
