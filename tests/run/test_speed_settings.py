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
labs.run.speed_settings.TensorFlowImport.hidden = hidden = sys.argv[2:]
collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase))
exec(sys.argv[1])
state = [name for name in hidden if name in sys.modules], len(collections), gc.isenabled()
import keras, matplotlib, sklearn, tensorflow
assert keras is sys.modules["keras"] and tensorflow.keras.backend.floatx() == keras.backend.floatx() == "float32"
assert hidden or keras.wrappers.SKLearnClassifier(keras.Sequential()), "a student's script has all of Keras"
print(json.dumps(state))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("imports", "hidden"), [
    ("import tensorflow", speed_settings.UNUSED),
    ("import keras", speed_settings.UNUSED),
    ("from keras import layers", ()),
    ("import tensorflow.keras", ()),
    ("import threading; own = threading.Thread(target=lambda: __import__('keras')); own.start(); own.join()", ()),
])
def test_a_workers_import_of_tensorflow_and_keras_in_either_order(tmp_path, imports, hidden):
    (tmp_path / "keras.json").write_text('{"floatx": "float16"}')
    done = subprocess.run([sys.executable, "-c", PROGRAM, imports, *hidden], cwd=ROOT, capture_output=True, text=True,
                          check=False, env=os.environ | {"KERAS_HOME": str(tmp_path)})
    assert done.stderr == ""
    assert json.loads(done.stdout) == [[], 0, True]
