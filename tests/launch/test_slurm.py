"""What labs.run.allocation makes of an allocation's environment; tests/slurm asks a real Slurm for one."""

from __future__ import annotations

import re

import pytest

from labs.run import allocation
from labs.run.errors import LabError

# From `env` in jobs of Slurm 22.05: -N 2 --ntasks-per-node=2 -c 2 --gpus-per-node=2, and a plain -N 2.
FULL = {
    "SLURM_JOB_ID": "4", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NTASKS": "4",
    "SLURM_NTASKS_PER_NODE": "2", "SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_CPUS_PER_TASK": "2",
    "SLURM_JOB_CPUS_PER_NODE": "4(x2)", "SLURM_GPUS_PER_NODE": "2", "SLURM_GPUS_ON_NODE": "2",
}
PLAIN = {
    "SLURM_JOB_ID": "6", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "node[1-2]",
    "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_JOB_CPUS_PER_NODE": "1(x2)",
}


def test_an_allocation_is_read_from_the_environment():
    assert allocation.current({"SLURM_CONF": "/etc/slurm/slurm.conf"}) is None
    granted = allocation.current(FULL)
    assert granted == allocation.Allocation("4", "node[1-2]", (2, 2), cpus_per_task=2, gpus_per_node=2)
    assert (granted.nodes, granted.ntasks) == (2, 4)
    assert allocation.current(PLAIN) == allocation.Allocation(
        "6", "node[1-2]", (1, 1), cpus_per_task=1, gpus_per_node=0)


@pytest.mark.parametrize(("tasks", "cpus", "each", "expected"), [
    ("2,1", "28,7", (2, 1), 7), ("4,4", "2(x2)", (4, 4), 1), ("3(x2),1", "12(x2),4", (3, 3, 1), 4),
])
def test_the_node_with_the_fewest_cpus_per_task_counts(tasks, cpus, each, expected):
    granted = allocation.current(PLAIN | {"SLURM_TASKS_PER_NODE": tasks, "SLURM_JOB_CPUS_PER_NODE": cpus,
                                          "SLURM_JOB_NUM_NODES": str(len(each))})
    assert (granted.ntasks_per_node, granted.cpus_per_task) == (each, expected)


@pytest.mark.parametrize(("name", "requested", "expected"), [
    ("GPUS_PER_NODE", "4", 4), ("GPUS_PER_NODE", "gpu:a100:4", 4), ("GPUS_PER_NODE", "a100:2,v100:1", 3),
    ("GPUS", "a100:3", 2), ("GPUS_PER_TASK", "2", 2), ("TRES_PER_TASK", "cpu=2,gres/gpu=1", 1),
    ("TRES_PER_TASK", "gres/gpu:a100=2,gres/gpu=2", 2), ("TRES_PER_TASK", "gpu:a100:4(S:0-1),nvme:1", 4),
])
def test_gpus_as_asked_for(name, requested, expected):
    """As salloc's shell has them; on a node, Slurm sets SLURM_GPUS_ON_NODE."""
    assert allocation.current(PLAIN | {f"SLURM_{name}": requested}).gpus_per_node == expected


@pytest.mark.parametrize(("variables", "message"), [
    ({"SLURM_JOB_ID": "7"}, r"SLURM_JOB_ID is set, but not SLURM_TASKS_PER_NODE; run inside sbatch"),
    (PLAIN | {"SLURM_HET_SIZE": "2"}, r"job 6 is heterogeneous \(2 parts\), and mpirun sees only its first part; "),
    (PLAIN | {"SLURM_TASKS_PER_NODE": "two"}, r"SLURM_TASKS_PER_NODE is .*, but .*; .*"),
    (PLAIN | {"SLURM_TASKS_PER_NODE": "1(x3)"}, r"SLURM_\w+ is .*, but .*; .*"),
    (PLAIN | {"SLURM_CPUS_PER_TASK": "many"}, r"SLURM_CPUS_PER_TASK is .*, but .*; .*"),
])
def test_an_unusable_allocation_is_refused_in_one_line(variables, message):
    with pytest.raises(LabError, match=f"^{message}") as error:
        allocation.current(variables)
    assert "\n" not in str(error.value)


def test_workers_are_the_tasks_or_as_many_as_the_cpus_allow():
    granted = allocation.current(FULL)
    assert [allocation.workers(granted, requested) for requested in (None, 1, 8)] == [4, 1, 8]
    with pytest.raises(LabError, match=r"--workers 9, but job 4 has 8 CPUs for workers on 2 nodes; .*sbatch -N"):
        allocation.workers(granted, 9)


@pytest.mark.parametrize(("gpus", "message"), [("2", "^$"), ("4", "2 will stand idle"), ("1", "workers will share")])
def test_advice_on_gpus(gpus, message):
    assert re.search(message, allocation.advice(allocation.current(FULL | {"SLURM_GPUS_ON_NODE": gpus})))


def test_tasks_that_mpi_did_not_join_are_refused():
    step = FULL | {"SLURM_STEP_NUM_TASKS": "2"}
    with pytest.raises(LabError, match="srun started 2 tasks"):
        allocation.check_step(step)
    allocation.check_step(step | {"OMPI_COMM_WORLD_SIZE": "1"})  # A worker of mpirun.
    allocation.check_step(FULL | {"SLURM_STEP_NUM_TASKS": "1"})  # A shell from `srun --pty` or salloc.
