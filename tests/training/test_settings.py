"""Horovod's settings: the kit changes them only where it has been measured to be faster."""

from __future__ import annotations

import horovod.tensorflow as hvd
import pytest
import tensorflow as tf

from labs.run import speed_settings
from labs.run.errors import LabError
from labs.training import devices, workers

CYCLE, FUSION = ("HOROVOD_CYCLE_TIME", "0.1"), ("HOROVOD_FUSION_THRESHOLD", "1048576")
GPU = [tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")]


@pytest.mark.parametrize(("size", "here", "operations", "nccl", "gpus", "expected"), [
    ("2", "2", "", False, [], {CYCLE, FUSION}),
    ("4", "2", "", False, [], {CYCLE}),  # Between machines, messages were not measured.
    ("2", "2", "", True, [], {CYCLE, FUSION}),  # A build for GPUs on a node without any: MPI carries the gradients.
    ("2", "2", "", True, GPU, set()),
    ("2", "2", "gloo", False, [], set()),
    ("1", "1", "", False, [], set()),
    (None, None, "", False, [], set()),
], ids=["MPI", "several machines", "NCCL without GPU", "NCCL", "Gloo", "one worker", "no launcher"])
def test_only_where_mpi_carries_the_gradients(monkeypatch, size, here, operations, nccl, gpus, expected):
    for name, value in (("OMPI_COMM_WORLD_SIZE", size), ("OMPI_COMM_WORLD_LOCAL_SIZE", here)):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", operations)
    monkeypatch.setattr(hvd, "nccl_built", lambda: nccl)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    assert set(speed_settings.horovod_defaults(devices.has_nccl()).items()) == expected


def test_a_worker_that_finds_no_other_is_refused(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(LabError, match="OMPI_COMM_WORLD_SIZE is 2, but Horovod finds one worker: "):
        workers.init(1)
