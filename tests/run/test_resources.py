"""CPU quotas: files of control groups as containers and schedulers make them, and `labs run` under a real quota."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from labs.run import resources
from labs.run.paths import ROOT

V1 = "33 31 0:30 {} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct"
V2 = "33 31 0:30 {} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
# By case: the mounts, /proc/self/cgroup, the groups' files, and the CPUs, on a machine with 8 cores.
CASES = {
    "no control groups": ([], "", {}, 8),
    "v1, above": ([V1.format("/"), UNIFIED], "0::/\n3:cpu,cpuacct:/pod/job", {
        "cpu,cpuacct/pod": (200000, 100000), "cpu,cpuacct/pod/job": (-1, 100000)}, 2),
    "v1, Docker without a namespace": ([V1.format("/docker/abc")], "3:cpuacct,cpu:/docker/abc", {
        "cpu,cpuacct": (50000, 100000)}, 0.5),
    "v2, none": ([V2.format("/")], "0::/job", {"job": "max 100000"}, 8),
    "v2, the smallest": ([V2.format("/")], "0::/a/b", {"a": "100000 100000", "a/b": "400000 100000"}, 1),
    "v2, outside of the namespace": ([V2.format("/")], "0::/../../other", {"": "200000 100000"}, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_a_quota_of_a_group_or_of_one_above_it_counts(tmp_path, monkeypatch, case):
    mounts, membership, groups, expected = CASES[case]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    if mounts:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/mountinfo").write_text("\n".join(["22 1 8:1 / / rw - ext4 /dev/root rw", *mounts]))
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
