"""Settings: a worker has what its record says, and its own cores; what would train alone or wrong is refused."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import horovod.tensorflow as hvd
import pytest
import tensorflow as tf

from labs.run.errors import LabError
from labs.training import layout, workers

CORES = sorted(os.sched_getaffinity(0))


def test_workers_on_one_gpu_are_refused_where_nccl_would_fail(monkeypatch):
    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    one, two = ("node", "a"), ("node", "b")
    for gpus, backend in (([one, two], "NCCL"), ([one, one], "MPI")):
        layout.refuse_shared_gpus(gpus, backend)
    with pytest.raises(LabError, match="2 workers on 1 GPU, and NCCL needs one per worker"):
        layout.refuse_shared_gpus([one, one], "NCCL")


def test_a_worker_that_finds_no_other_is_refused(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(LabError, match="OMPI_COMM_WORLD_SIZE is 2, but Horovod finds one worker: "):
        workers.init(1)


def test_gloo_is_refused_where_horovod_has_none(monkeypatch):
    """As conda-forge's Horovod: the first all-reduce would be a segmentation fault."""
    monkeypatch.setattr(hvd, "gloo_built", lambda: False)
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", "gloo")
    with pytest.raises(LabError, match="built without Gloo; leave --backend gloo out"), workers.gloo_rendezvous("a"):
        pass


def test_horovods_own_layer_is_refused_by_name():
    """It exchanges no gradient on Keras 3."""
    with pytest.raises(LabError, match="never exchanges a gradient on Keras 3; use `import horovod_keras3 as hvd`"):
        importlib.import_module("horovod.keras")
    with pytest.raises(LabError, match="never exchanges a gradient"):
        hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))


def cores_of_all_threads() -> set[frozenset[int]]:
    """Also of TensorFlow's and Horovod's threads, which were there before."""
    return {frozenset(os.sched_getaffinity(int(thread.name))) for thread in Path("/proc/self/task").iterdir()}


@pytest.mark.skipif(len(CORES) < 2, reason="one core cannot be divided")
def test_each_worker_of_a_node_has_cores_of_its_own_while_it_works():
    half = len(CORES) // 2
    for rank, threads, expected in ((0, half, CORES[:half]), (1, half, CORES[half : 2 * half]), (1, len(CORES), CORES)):
        mine = layout.Layout(rank, 2, rank, 2, 1, ("here",), threads, 0, "none")
        with layout.bind_to_cores(mine) as cores:
            assert cores == expected, "where the cores do not suffice, nothing is bound"
            assert cores_of_all_threads() == {frozenset(expected)}
        assert cores_of_all_threads() == {frozenset(CORES)}


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
