"""The proof at the end of `make env` fails when Horovod does not average or broadcast."""

import os
import sys
from pathlib import Path

import pytest
from machine import find_mpi
from make_env import prove
from steps import SetupError, Steps

from tests.setup.clone import ROOT

pytestmark = pytest.mark.workers
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    ("line", "instead", "verdict"),
    [("DistributedOptimizer(tf.keras.optimizers.SGD(0.1))", "tf.keras.optimizers.SGD(0.1)",
      "after the step the workers' weights differ: the gradients were not averaged"),
     ("    model.set_weights(hvd.broadcast_object(model.get_weights(), root_rank=0))\n", "",
      "the broadcast left the workers' weights different")],
    ids=["not averaged", "not broadcast"],
)
def test_a_proof_of_workers_that_are_not_together(line, instead, verdict, tmp_path):
    text = (ROOT / "setup" / "proof.py").read_text()
    assert line in text
    (tmp_path / "proof.py").write_text(text.replace(line, instead))
    mpi = find_mpi(f"{BIN}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(SetupError, match=f"^proof: {verdict}"):
        prove(Steps(1, tmp_path / "log"), mpi, Path(sys.executable), tmp_path / "proof.py")
