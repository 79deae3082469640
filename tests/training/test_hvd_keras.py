"""The choice of Horovod's Keras layer, and the guard that refuses Horovod's own one on Keras 3."""

from __future__ import annotations

import importlib
import os
import re
import runpy
import subprocess
import sys

import horovod.tensorflow
import pytest
import tensorflow as tf

from labs.run.errors import LabError
from labs.run.paths import ROOT
from labs.training.keras_internals import GENERATION

needs_keras3 = pytest.mark.skipif(GENERATION < 3, reason="Keras 2 has Horovod's own layer")


@pytest.mark.skipif(GENERATION >= 3, reason="this is Keras 3")
def test_keras_2_is_refused():
    with pytest.raises(ImportError, match=r"needs Keras 3, and tf\.keras is Keras 2"):
        runpy.run_path(str(ROOT / "horovod_keras3/horovod_keras3.py"))


@pytest.mark.skipif(GENERATION >= 3, reason="this is Keras 3")
def test_on_keras_2_it_is_horovods_own_also_by_the_name_that_students_import():
    import horovod.tensorflow.keras

    from labs.training import hvd_keras

    assert sys.modules["horovod_keras3"] is horovod.tensorflow.keras
    assert hvd_keras.DistributedOptimizer is horovod.tensorflow.keras.DistributedOptimizer


MISSING = """
import sys
sys.path.remove(sys.argv[1])
from labs.training import hvd_keras
"""


@needs_keras3
def test_a_missing_package_is_named(tmp_path):
    """Python would take the clone's folder of its name for a package without contents."""
    import horovod_keras3

    folder = os.path.dirname(horovod_keras3.__file__)
    done = subprocess.run([sys.executable, "-c", MISSING, folder], cwd=tmp_path, env=os.environ | {
        "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=False)
    assert re.fullmatch(r"labs: error: horovod_keras3 is not installed for \S+; make .*\n", done.stderr), done.stderr


@needs_keras3
def test_horovods_own_layer_is_refused_by_name():
    for own in ("horovod.keras", "horovod.tensorflow.keras", "horovod.tensorflow.keras.callbacks"):
        with pytest.raises(LabError, match="never exchanges a gradient on Keras 3; use `import horovod_keras3 as hvd`"):
            importlib.import_module(own)
    with pytest.raises(LabError, match="never exchanges a gradient"):
        horovod.tensorflow.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
