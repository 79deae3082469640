"""The choice of Horovod's Keras layer, and the guard that refuses Horovod's own one on Keras 3."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys

import pytest
import tensorflow as tf

from labs.launch import mpirun
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
def test_horovods_own_layer_is_stopped_by_name():
    import horovod.keras
    import horovod.tensorflow.keras

    import horovod_keras3
    from labs.training import hvd_keras

    assert hvd_keras.DistributedOptimizer is horovod_keras3.DistributedOptimizer
    for make in (horovod.keras.DistributedOptimizer, horovod.keras.PartialDistributedOptimizer,
                 horovod.tensorflow.keras.DistributedOptimizer, horovod.tensorflow.DistributedOptimizer):
        with pytest.raises(LabError, match="Horovod's own DistributedOptimizer never exchanges a gradient on Keras 3; "
                                           "use horovod_keras3"):
            make(tf.keras.optimizers.SGD(0.1))


LAB = """
import dataclasses
from labs import Lab, Options, fields, main, training

@dataclasses.dataclass(frozen=True)
class Config:
    seed: fields.Seed = 1

def run(config, options=Options()):
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf
    with training.start(config, options):
        hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))

LAB = Lab(Config, {"demo": Config()}, run)

if __name__ == "__main__":
    main()
"""


@needs_keras3
def test_a_lab_with_horovods_own_layer_ends_with_one_line(tmp_path):
    (tmp_path / "lab99_own.py").write_text(LAB)
    done = subprocess.run([sys.executable, "-m", "lab99_own", "--results", str(tmp_path)], cwd=tmp_path,
                          env=mpirun.environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert re.fullmatch("labs: error: rank 0 .*: Horovod's own DistributedOptimizer never exchanges .*",
                        done.stderr.splitlines()[-1]), done.stderr
    assert "Traceback" not in done.stderr
