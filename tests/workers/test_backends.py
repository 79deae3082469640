"""The backend that a Config names is the one that carries the tensors: shown on the wire, not by --check-build."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from labs.launch import mpirun
from labs.run.errors import LabError
from labs.training import rendezvous

LINE = r"rank (\d): local (\d) of 2, (\w+), ([\d.]+) buffers per all-reduce on lo"


@pytest.mark.alone
@pytest.mark.parametrize(("chosen", "ran", "least", "most"), [("mpi", "MPI", 0, 0.1), ("gloo", "Gloo", 2, 2.5)])
def test_the_backend_that_is_asked_for_carries(workers, chosen, ran, least, most):
    """Two workers of one machine: N x 2(N-1)/N = 2 buffers cross the loopback interface, or none over shared memory."""
    result = re.findall(LINE, workers("backends.py", 2, chosen).stdout)
    assert sorted((rank, local, backend) for rank, local, backend, _ in result) == [("0", "0", ran), ("1", "1", ran)]
    assert all(least <= float(buffers) <= most for *_, buffers in result)


def test_one_worker_can_ask_for_gloo(workers):
    assert "rank 0: local 0 of 1, none" in workers("backends.py", 1, "gloo").stdout


def test_horovodrun_over_gloo_and_a_lab_over_mpi_do_not_go_together(tmp_path):
    horovodrun = [Path(sys.executable).with_name("horovodrun"), "--gloo", "-np", "2", "--network-interfaces", "lo"]
    command = [*horovodrun, sys.executable, "-m", "labs.lab05_allreduce", "--results", tmp_path]
    done = subprocess.run([*map(str, command)], env=mpirun.environment(), capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode, done.stdout
    assert "add --backend gloo, or start them with `labs run`" in done.stdout + done.stderr
    assert "Traceback" not in (done.stdout + done.stderr).partition("labs: error")[0]
    assert not list(tmp_path.rglob("record.json"))


def test_a_horovod_without_gloo_is_refused_by_name(monkeypatch):
    """conda-forge's; without the check its first all-reduce is a segmentation fault."""
    monkeypatch.setattr("horovod.tensorflow.gloo_built", lambda: False)
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", "gloo")
    with pytest.raises(LabError, match="built without Gloo; leave --backend gloo out"), rendezvous.gloo_rendezvous("a"):
        pass


WITHOUT_GLOO = """
import sys
from horovod.runner import launch
from labs.launch import elastic
launch.gloo_built = lambda verbose: False
sys.argv = "horovodrun -np 2 --min-np 1 --max-np 2 --host-discovery-script true true".split()
elastic.main()
"""


def test_an_elastic_run_without_gloo_is_refused_by_name():
    done = subprocess.run([sys.executable, "-c", WITHOUT_GLOO], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "labs: error: this Horovod was built without Gloo, which elastic training needs" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("rank", range(5))
def test_places_on_unequal_nodes(rank):
    variables = rendezvous._environment(rank, ["a", "b", "a", "b", "a"], "10.0.0.1", 77)
    local = [(0, 3), (0, 2), (1, 3), (1, 2), (2, 3)][rank]
    cross = [(0, 2), (1, 2), (0, 2), (1, 2), (0, 1)][rank]
    assert (variables["HOROVOD_LOCAL_RANK"], variables["HOROVOD_LOCAL_SIZE"]) == tuple(map(str, local))
    assert (variables["HOROVOD_CROSS_RANK"], variables["HOROVOD_CROSS_SIZE"]) == tuple(map(str, cross))
    assert variables["HOROVOD_HOSTNAME"] == "ab"[rank % 2]
    assert "HOROVOD_GLOO_IFACE" not in variables, "between nodes Gloo cannot use the loopback interface"
