"""What labs.run.allocation makes of an allocation's environment; tests/slurm asks a real Slurm for one."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labs.run import allocation
from labs.run.errors import LabError

# From `env` in jobs of Slurm 22.05: -N 2 --ntasks-per-node=2 -c 2 --gpus-per-node=2, and a plain -N 2.
FULL = {
    "SLURM_JOB_ID": "4",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_NODELIST": "node[1-2]",
    "SLURM_NTASKS": "4",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURM_CPUS_PER_TASK": "2",
    "SLURM_JOB_CPUS_PER_NODE": "4(x2)",
    "SLURM_GPUS_PER_NODE": "2",
    "SLURM_GPUS_ON_NODE": "2",
}
PLAIN = {
    "SLURM_JOB_ID": "6",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_NODELIST": "node[1-2]",
    "SLURM_TASKS_PER_NODE": "1(x2)",
    "SLURM_JOB_CPUS_PER_NODE": "1(x2)",
}


def test_no_allocation():
    assert allocation.current({"SLURM_CONF": "/etc/slurm/slurm.conf", "PATH": "/bin"}) is None


def test_an_allocation():
    granted = allocation.current(FULL)
    assert granted == allocation.Allocation("4", "node[1-2]", (2, 2), cpus_per_task=2, gpus_per_node=2)
    assert (granted.nodes, granted.ntasks) == (2, 4)


def test_a_plain_allocation():
    assert allocation.current(PLAIN) == allocation.Allocation(
        "6", "node[1-2]", (1, 1), cpus_per_task=1, gpus_per_node=0
    )


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SLURM_TASKS_PER_NODE": "2,1", "SLURM_JOB_CPUS_PER_NODE": "28,7"}, 7),  # The worst node counts.
        ({"SLURM_TASKS_PER_NODE": "4,4", "SLURM_JOB_CPUS_PER_NODE": "2(x2)"}, 1),
        ({"SLURM_CPUS_PER_TASK": "3", "SLURM_JOB_CPUS_PER_NODE": "28(x2)"}, 3),
    ],
)
def test_cpus_per_task(variables, expected):
    assert allocation.current(PLAIN | variables).cpus_per_task == expected


@pytest.mark.parametrize(("name", "requested", "expected"), [
    ("GPUS_PER_NODE", "4", 4), ("GPUS_PER_NODE", "a100:4", 4), ("GPUS_PER_NODE", "gpu:a100:4", 4),
    ("GPUS_PER_NODE", "a100", 1), ("GPUS_PER_NODE", "a100:2,v100:1", 3), ("GPUS_PER_NODE", "1g.5gb:2", 2),
    ("GPUS_PER_NODE", "a100,v100:2", 3), ("GPUS_PER_NODE", "0", 0), ("GPUS", "4", 2), ("GPUS", "a100:3", 2),
    ("GPUS_PER_TASK", "2", 2), ("TRES_PER_TASK", "cpu=2,gres/gpu=1", 1), ("TRES_PER_TASK", "cpu:2,gres/gpu:a100:2", 2),
    ("TRES_PER_TASK", "cpu=2", 0),
])
def test_gpus_as_asked_for(name, requested, expected):
    """As salloc's shell has them; on a node, Slurm sets SLURM_GPUS_ON_NODE."""
    assert allocation.current(PLAIN | {f"SLURM_{name}": requested}).gpus_per_node == expected


def test_a_variable_that_is_not_set_is_not_blamed():
    with pytest.raises(LabError, match=r"^SLURM_JOB_ID is set, but not SLURM_TASKS_PER_NODE; run inside sbatch"):
        allocation.current({"SLURM_JOB_ID": "7"})


@settings(deadline=None)  # The machine may be busy.
@given(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 9)), min_size=1, max_size=9))
def test_short_form(groups):
    text = ",".join(f"{tasks}(x{times})" if times > 1 else str(tasks) for tasks, times in groups)
    tasks = tuple(tasks for tasks, times in groups for _ in range(times))
    variables = PLAIN | {"SLURM_TASKS_PER_NODE": text, "SLURM_JOB_NUM_NODES": str(len(tasks))}
    assert allocation.current(variables).ntasks_per_node == tasks


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLURM_TASKS_PER_NODE", ""),
        ("SLURM_TASKS_PER_NODE", "two"),
        ("SLURM_TASKS_PER_NODE", "0(x2)"),
        ("SLURM_TASKS_PER_NODE", "1(x2"),
        ("SLURM_TASKS_PER_NODE", "1(x999999999)"),
        ("SLURM_TASKS_PER_NODE", "1(x3)"),
        ("SLURM_JOB_NUM_NODES", "-2"),
        ("SLURM_JOB_NUM_NODES", "²"),
        ("SLURM_CPUS_PER_TASK", "many"),
        ("SLURM_JOB_CPUS_PER_NODE", "?"),
        ("SLURM_GPUS_ON_NODE", "gpu"),
    ],
)
def test_nonsense_is_one_line(name, value):
    with pytest.raises(LabError, match=r"^SLURM_\w+ is .*, but .*; .*") as error:
        allocation.current(PLAIN | {name: value})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("requested", "expected"), [(None, 4), (1, 1), (4, 4), (8, 8)])
def test_workers(requested, expected):
    assert allocation.workers(allocation.current(FULL), requested) == expected


@pytest.mark.parametrize("requested", [-1, 0, 9])
def test_workers_without_cpus(requested):
    with pytest.raises(
        LabError,
        match=rf"--workers {requested}, but job 4 has 8 CPUs for workers on 2 nodes; .*sbatch -N",
    ):
        allocation.workers(allocation.current(FULL), requested)


@pytest.mark.parametrize(
    ("gpus", "message"), [("0", ""), ("2", ""), ("4", "2 will stand idle"), ("1", "workers will share one")]
)
def test_advice_on_gpus(gpus, message):
    line = allocation.advice(allocation.current(FULL | {"SLURM_GPUS_ON_NODE": gpus}))
    assert message in line
    assert bool(line) == bool(message)


def test_tasks_that_mpi_did_not_join():
    step = FULL | {"SLURM_STEP_NUM_TASKS": "2"}
    with pytest.raises(LabError, match="srun started 2 tasks"):
        allocation.check_step(step)
    allocation.check_step(step | {"OMPI_COMM_WORLD_SIZE": "1"})  # A worker of mpirun.
    allocation.check_step(FULL | {"SLURM_STEP_NUM_TASKS": "1"})  # A shell from `srun --pty` or salloc.
    allocation.check_step(FULL)


def test_imports_no_tensorflow():
    code = "import sys, labs.run.allocation; sys.exit('tensorflow' in sys.modules or 'horovod' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
