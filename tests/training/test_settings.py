"""Settings: Horovod's where that has been measured to be faster; a run has the settings that its record names."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import horovod.tensorflow as hvd
import pytest
import tensorflow as tf

from labs.run import environment
from labs.run.errors import LabError
from labs.training import layout, workers

CYCLE, FUSION = ("HOROVOD_CYCLE_TIME", "0.1"), ("HOROVOD_FUSION_THRESHOLD", "1048576")
GPU = [tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")]


@pytest.mark.parametrize(("size", "here", "operations", "nccl", "gpus", "expected"), [
    ("2", "2", "", False, [], {CYCLE, FUSION}),
    ("4", "2", "", False, [], {CYCLE}),  # Between machines, messages were not measured.
    ("2", "2", "", True, GPU, set()),
    ("2", "2", "gloo", False, [], set()),
    (None, None, "", False, [], set()),
], ids=["MPI", "several machines", "NCCL", "Gloo", "no launcher"])
def test_only_where_mpi_carries_the_gradients(monkeypatch, size, here, operations, nccl, gpus, expected):
    for name, value in (("OMPI_COMM_WORLD_SIZE", size), ("OMPI_COMM_WORLD_LOCAL_SIZE", here)):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", operations)
    monkeypatch.setattr(hvd, "nccl_built", lambda: nccl)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    assert set(environment.horovod_defaults(layout.has_nccl()).items()) == expected


@pytest.mark.parametrize(("gpus", "backend", "shared"), [("ab", "NCCL", ""), ("aa", "MPI", ""), ("aa", "NCCL", "1")])
def test_workers_on_one_gpu_are_refused_where_nccl_would_fail(monkeypatch, gpus, backend, shared):
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", shared)
    layout.check_shared_gpus([("node", gpu) for gpu in gpus], backend)
    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE")
    with pytest.raises(LabError, match="2 workers on 1 GPU, and NCCL needs one per worker"):
        layout.check_shared_gpus([("node", "a"), ("node", "a")], "NCCL")


def test_a_worker_that_finds_no_other_is_refused(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(LabError, match="OMPI_COMM_WORLD_SIZE is 2, but Horovod finds one worker: "):
        workers.init(1)


@pytest.mark.parametrize(("variables", "gloo", "cause"), [
    ({"HOROVOD_CPU_OPERATIONS": "gloo"}, False, "built without Gloo; leave --backend gloo out"),
    ({"HOROVOD_CPU_OPERATIONS": "mpi", "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1"}, True,
     "add --backend gloo, or start them with `labs run`"),
], ids=["conda-forge's Horovod", "horovodrun --gloo"])
def test_what_gloo_and_mpi_cannot_do_is_refused(monkeypatch, variables, gloo, cause):
    """Without these checks the first all-reduce is a segmentation fault."""
    monkeypatch.setattr(hvd, "gloo_built", lambda: gloo)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LabError, match=cause), workers.gloo_rendezvous("a"):
        pass


LATE = """
import os
import tensorflow as tf

from labs import LabError, lab02_horovod, lab05_allreduce

tf.config.threading.set_intra_op_parallelism_threads(3)
tf.constant(0)  # TensorFlow starts.
print(lab02_horovod.run(lab02_horovod.Config(images=128, epochs=1))["layout"]["threads"], "threads")
os.environ["HOROVOD_CYCLE_TIME"] = "5.0"  # Horovod has started, and does not read it.
print(lab02_horovod.run(lab02_horovod.Config(images=128, epochs=1))["machine"]["cycle_time_ms"], "ms")
for lab, config in ((lab02_horovod, {"threads": 1}), (lab05_allreduce, {"cycle_time_ms": 5.0})):
    try:
        lab.run(lab.Config(**config))
    except LabError as error:
        print(error)
"""


@pytest.mark.everyday
@pytest.mark.slow
def test_a_run_in_a_process_that_has_started_has_what_its_record_says(tmp_path):
    """As in a notebook whose own TensorFlow has trained: neither its threads nor Horovod's settings can change."""
    done = subprocess.run([sys.executable, "-c", LATE], env=os.environ | {"LABS_RESULTS": str(tmp_path)}, text=True,
                          capture_output=True, check=True)
    threads, cycle = re.findall("^.* (?:threads|ms)$", done.stdout, re.MULTILINE)
    *_, asked, late = done.stdout.splitlines()
    assert (threads, cycle) == ("3 threads", "1.0 ms")
    assert asked.startswith("TensorFlow has started in this process, with 3 threads, and this run needs 1;")
    assert late.startswith("Horovod has started in this process without this run's HOROVOD_CYCLE_TIME;")
    assert len(list(tmp_path.rglob("record.json"))) == 2
