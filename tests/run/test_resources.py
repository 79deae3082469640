"""Cores, quotas and Slurm's allocation; tests/slurm asks a real Slurm."""

import os

import pytest

from labs.run import mpirun, resources
from labs.run.errors import LabError

# By case: /proc/self/cgroup, the groups' files, and the CPUs, on a machine with 8 cores.
CASES = {
    "no control groups": ("", {}, 8),
    "none": ("0::/job", {"job": "max 100000"}, 8),
    "the smallest": ("1:cpu:/c\n0::/a/b", {"a": "100000 100000", "a/b": "400000 100000"}, 1),
    "version 1": ("4:cpu,cpuacct:/job", {"cpu,cpuacct/job": "150000 100000"}, 1.5),
    "outside of the namespace": ("0::/../../other", {"": "200000 100000"}, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_a_quota_of_a_group_or_of_one_above_it_counts(tmp_path, monkeypatch, case):
    membership, groups, expected = CASES[case]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(membership)
    for name, quota in groups.items():
        folder = tmp_path / "sys/fs/cgroup" / name
        folder.mkdir(parents=True, exist_ok=True)
        files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if name.startswith("cpu") else ("cpu.max",)
        for file, text in zip(files, quota.split() if len(files) > 1 else [quota], strict=True):
            (folder / file).write_text(text)
    assert resources.cpus(tmp_path) == expected


def test_whatever_counts_cores_counts_the_quota_and_two_workers_are_refused(monkeypatch):
    from labs.training import layout

    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(resources, "_quota", lambda group: 1.5)
    assert (resources.cores(), layout.machine()["cores"], layout.share_of_cores(1), mpirun.slots()) == (1, 1, 1, 1)
    with pytest.raises(LabError, match=r"2 workers on 1 core \(the CPU quota is 1.5\) would wait for each other"):
        mpirun.choose_workers(2, oversubscribe=False)


# From `env` in jobs of Slurm 22.05: -N 2 --ntasks-per-node=2 -c 2, and a plain -N 2.
FULL = {"SLURM_JOB_ID": "4", "SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_CPUS_PER_TASK": "2"}
PLAIN = {"SLURM_JOB_ID": "6", "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_JOB_CPUS_PER_NODE": "1(x2)"}


@pytest.fixture
def allocate(monkeypatch):
    """Return the allocation of an environment's variables."""
    def allocate(variables: dict[str, str]):
        for name in [name for name in os.environ if name.startswith("SLURM_")]:
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return resources.allocation()

    return allocate


def test_an_allocation_is_read_from_the_environment(allocate):
    uneven = {"SLURM_TASKS_PER_NODE": "3(x2),1", "SLURM_JOB_CPUS_PER_NODE": "12(x2),4"}
    assert allocate({}) is None
    assert [allocate(each)[1:] for each in (FULL, PLAIN, PLAIN | uneven)] == [((2, 2), 8), ((1, 1), 2), ((3, 3, 1), 28)]


def test_workers_are_the_tasks_or_as_many_as_the_cpus_allow(allocate):
    with pytest.raises(LabError, match=r"SLURM_JOB_ID is set, but SLURM_TASKS_PER_NODE is not; run inside sbatch"):
        allocate({"SLURM_JOB_ID": "7"})
    allocate(FULL)
    assert [mpirun.choose_workers(requested, False) for requested in (None, 1, 8)] == [4, 1, 8]
    with pytest.raises(LabError, match=r"--workers 9, but job 4 has 8 CPUs for workers on 2 nodes; .*sbatch -N"):
        mpirun.choose_workers(9, False)
    allocate(FULL | {"SLURM_STEP_NUM_TASKS": "2"})
    with pytest.raises(LabError, match="srun started 2 tasks that MPI did not join"):
        mpirun.choose_workers(None, False)
