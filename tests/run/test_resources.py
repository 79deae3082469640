"""Cores, quotas and Slurm's allocation, and `labs run` under a real quota; tests/slurm asks a real Slurm."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from labs.run import resources
from labs.run.errors import LabError
from labs.run.paths import ROOT

# By case: /proc/self/cgroup, the groups' files, and the CPUs, on a machine with 8 cores.
CASES = {
    "no control groups": ("", {}, 8),
    "v1, above": ("0::/\n3:cpu,cpuacct:/pod/job", {
        "cpu,cpuacct/pod": (200000, 100000), "cpu,cpuacct/pod/job": (-1, 100000)}, 2),
    "v1, Docker without a namespace": ("3:cpuacct,cpu:/docker/abc", {"cpuacct,cpu": (50000, 100000)}, 0.5),
    "v2, none": ("0::/job", {"job": "max 100000"}, 8),
    "v2, the smallest": ("0::/a/b", {"a": "100000 100000", "a/b": "400000 100000"}, 1),
    "v2, outside of the namespace": ("0::/../../other", {"": "200000 100000"}, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_a_quota_of_a_group_or_of_one_above_it_counts(tmp_path, monkeypatch, case):
    membership, groups, expected = CASES[case]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    if membership:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(membership)
    for name, quota in groups.items():
        folder = tmp_path / "sys/fs/cgroup" / name
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(quota, str):
            (folder / "cpu.max").write_text(quota)
        else:
            for number, what in zip(quota, ("quota", "period"), strict=True):
                (folder / f"cpu.cfs_{what}_us").write_text(str(number))
    assert resources.cpus(tmp_path) == expected


@contextlib.contextmanager
def quota_of_one_core() -> Iterator[list[str]]:
    """Yield the words before a command that run it in a control group below one that may use one core."""
    for file, quota in (("cpu/cpu.cfs_quota_us", "100000"), ("cpu.max", "100000 100000")):  # By version.
        limit = Path("/sys/fs/cgroup", file)
        group = limit.parent / f"labs-quota-{os.getpid()}"
        try:
            (group / "inner").mkdir(parents=True)
            (group / limit.name).write_text(quota)
            yield ["sh", "-c", f'echo $$ > {group}/inner/cgroup.procs && exec "$@"', "sh"]
            return
        except OSError:
            continue
        finally:
            for each in (group / "inner", group):
                each.exists() and each.rmdir()
    pytest.skip("no control group can be made here")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is a limit already")
def test_under_a_quota_of_one_core_two_workers_are_refused(tmp_path):
    """Everything that counts cores counts the quota."""
    program = ("from labs.training import layout\nfrom labs.run import resources\n"
               "print(layout.share_of_cores(1), layout.machine()['cores'], resources.cores())")
    run = [sys.executable, "-m", "labs", "run", "lab02", "--workers", "2", "--results", tmp_path]
    with quota_of_one_core() as inside:
        counted, refused = (subprocess.run([*inside, *words], cwd=ROOT, capture_output=True, text=True, check=False)
                            for words in ([sys.executable, "-c", program], run))
    assert counted.stdout == "1 1 1\n", counted.stderr
    assert refused.stderr == ("labs: error: 2 workers on 1 core (the CPU quota is 1) would wait for each other; "
                              "ask for at most 1, or add --oversubscribe\n")


def test_the_age_of_a_process_does_not_depend_on_the_system_time():
    began, program = time.monotonic(), ("from labs.run import resources; resources.time.time = lambda: 0.0; "
                                        "print(resources.process_seconds())")
    age = float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
    assert 0 < age < time.monotonic() - began + 0.02  # The kernel counts in hundredths of a second.


# From `env` in jobs of Slurm 22.05: -N 2 --ntasks-per-node=2 -c 2 --gpus-per-node=2, and a plain -N 2.
FULL = {"SLURM_JOB_ID": "4", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURM_CPUS_PER_TASK": "2", "SLURM_JOB_CPUS_PER_NODE": "4(x2)", "SLURM_GPUS_ON_NODE": "2"}
PLAIN = {"SLURM_JOB_ID": "6", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)",
         "SLURM_JOB_CPUS_PER_NODE": "1(x2)"}


@pytest.fixture
def allocate(monkeypatch):
    """Return the allocation of an environment's variables."""
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)

    def allocate(variables: dict[str, str]):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return resources.allocation()

    return allocate


@pytest.mark.parametrize(("variables", "expected"), [
    ({}, None), (FULL, ((2, 2), 2, 2)), (PLAIN, ((1, 1), 1, 0)),
    (PLAIN | {"SLURM_TASKS_PER_NODE": "2,1", "SLURM_JOB_CPUS_PER_NODE": "28,7"}, ((2, 1), 7, 0)),
    (PLAIN | {"SLURM_TASKS_PER_NODE": "3(x2),1", "SLURM_JOB_CPUS_PER_NODE": "12(x2),4"}, ((3, 3, 1), 4, 0)),
])
def test_an_allocation_is_read_from_the_environment(allocate, variables, expected):
    granted = allocate(variables)
    assert (granted and (granted.ntasks_per_node, granted.cpus_per_task, granted.gpus_per_node)) == expected


def test_an_unreadable_allocation_is_refused(allocate):
    with pytest.raises(LabError, match=r"SLURM_JOB_ID is set, but SLURM_TASKS_PER_NODE is None; run inside sbatch"):
        allocate({"SLURM_JOB_ID": "7"})


def test_workers_are_the_tasks_or_as_many_as_the_cpus_allow(allocate):
    granted = allocate(FULL)
    assert [resources.choose_tasks(granted, requested) for requested in (None, 1, 8)] == [4, 1, 8]
    with pytest.raises(LabError, match=r"--workers 9, but job 4 has 8 CPUs for workers on 2 nodes; .*sbatch -N"):
        resources.choose_tasks(granted, 9)


@pytest.mark.parametrize(("gpus", "message"), [("2", "^$"), ("4", "2 will stand idle"), ("1", "workers will share")])
def test_advice_on_gpus(allocate, gpus, message):
    assert re.search(message, resources.gpu_advice(allocate(FULL | {"SLURM_GPUS_ON_NODE": gpus})))


def test_tasks_that_mpi_did_not_join_are_refused(allocate, monkeypatch):
    allocate(FULL | {"SLURM_STEP_NUM_TASKS": "2"})
    with pytest.raises(LabError, match="srun started 2 tasks"):
        resources.refuse_separate_tasks()
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")  # A worker of mpirun.
    resources.refuse_separate_tasks()


def test_gpus_are_counted_as_slurm_writes_them():
    assert [resources.count_gpus(text) for text in ("gpu:a100:4(S:0-1),nvme:1", "gres/gpu=4", "gpu", "(null)")] == [
        4, 4, 1, 0]
