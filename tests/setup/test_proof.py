"""The proof at the end of `make env` fails when Horovod does not average or broadcast; a launcher starts workers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from machine import find_mpi
from make_env import prove
from steps import SetupError, Steps

from tests.setup.clone import ROOT

pytestmark = pytest.mark.workers
BIN = Path(sys.executable).parent
WORKER = """
import os, sys
rank = os.environ["OMPI_COMM_WORLD_RANK"]
print(f"rank {rank}, {sys.prefix}, {len(os.sched_getaffinity(0))} cores, {sys.argv[1]}", flush=True)
"""


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


@pytest.mark.skipif(not (BIN / "ompirun_wrapper").exists(), reason="the site's Open MPI has the site's defaults")
@pytest.mark.parametrize("launcher", ["mpirun", "horovodrun"])
def test_a_launcher_called_by_its_path_starts_the_environments_python_unbound(launcher, tmp_path):
    (tmp_path / "train.py").write_text(WORKER)
    elsewhere = os.pathsep.join(folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder) != BIN)
    env = {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")} | {"PATH": elsewhere}
    command = [BIN / launcher, "-np", "2", "python", "train.py", "a b"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    for rank in range(2):
        assert f"rank {rank}, {sys.prefix}, {len(os.sched_getaffinity(0))} cores, a b" in done.stdout, done.stderr
