"""Horovod's settings: the kit changes them only where it has been measured to be faster."""

from __future__ import annotations

import horovod.tensorflow as hvd
import pytest
import tensorflow as tf

from labs.run import speed_settings
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
    assert set(speed_settings.horovod_defaults(layout.has_nccl()).items()) == expected


@pytest.mark.parametrize(("gpus", "backend", "shared"), [("ab", "NCCL", ""), ("aa", "MPI", ""), ("aa", "NCCL", "1")])
def test_workers_on_one_gpu_are_refused_where_nccl_would_fail(monkeypatch, gpus, backend, shared):
    monkeypatch.setattr(layout, "backend", lambda: backend)
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", shared)
    layout.check_shared_gpus([("node", gpu) for gpu in gpus])
    monkeypatch.setattr(layout, "backend", lambda: "NCCL")
    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE")
    with pytest.raises(LabError, match="2 workers on 1 GPU, and NCCL needs one per worker"):
        layout.check_shared_gpus([("node", "a"), ("node", "a")])


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
