"""mpirun's host file: the number of nodes, and the command line of mpirun for several."""

from __future__ import annotations

import os
import re
import subprocess

import psutil
import pytest

from labs.launch import capacity, hosts, mpirun
from labs.run import resources
from labs.run.errors import LabError

VARIABLE = "PRTE_MCA_prte_default_hostfile"


@pytest.fixture
def host_file(tmp_path, monkeypatch):
    """Write a host file and have mpirun use it."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    def write(text: str) -> None:
        (tmp_path / "hosts").write_bytes(text.encode("latin-1"))
        monkeypatch.setenv(VARIABLE, str(tmp_path / "hosts"))

    return write


READ = [
    "n1 slots=2\nn2 slots=3 max_slots=4\n", "n1 slots = 2\nn2 slots= 3", "n1 max_slots=8\nn2 max-slots = 3 port=22\n",
    "# two nodes, caf\xe9\nn1 slots=1 # caf\xe9\n\n\t// n3\n/* n4\nn5 */n2 count=2\n", "n1\nn2 cpu=2\nn1\n",
    "n1 slots=2\nn1\n", "n1.uni.edu slots=2\nn2.uni.edu\nn2.uni.org\n", "me@n1 slots=2\nn2 username=me slots=1\n",
    "10.1.2.3 slots=2\n10.1.2.4 slots=1\nfe80::1 slots=4\n::1 slots=3\n",
]
REFUSED = [
    "n1 slots=2\nn1 slots=3\n", "n1\nn1 slots=2\n", "n1 slots=1 slots=2\n", "n1 slots=two\n", "n1 slots=-1\n",
    "n1 slots 2\n", "n1 SLOTS=2\n", "n\xe9 slots=2\n", "n1 slots=2\r\n", "n1 user=me slots=2\n", '"n1" slots=2\n',
    "[fe80::1] slots=2\n", "\xef\xbb\xbfn1 slots=2\n",
]


def counted_by_mpirun(file) -> dict[str, int]:
    """Return the slots that the environment's mpirun reads from a host file; it reaches none of the hosts."""
    env = mpirun.environment() | {VARIABLE: str(file), "PRTE_MCA_plm_ssh_agent": "/bin/false",
                                  "PRTE_MCA_ras_base_display_alloc": "1", "PRTE_MCA_ras_base_verbose": "5"}
    done = subprocess.run([*mpirun.command(1), "true"], env=env, capture_output=True, check=False, errors="replace")
    shown = (done.stdout + done.stderr).partition("ALLOCATED NODES")[2].partition("\n====")[0]
    return {} if "detected a" in done.stderr or "multiple def" in done.stderr else {
        host: int(count) for host, count in re.findall(r"^ +(\S+): slots=(\d+)", shown, re.MULTILINE)}


def test_slots_are_counted_as_mpirun_counts_them(tmp_path, host_file):
    for text in READ:
        host_file("n9 slots=1\n")
        (tmp_path / "here").write_bytes(text.encode("latin-1"))
        expected = counted_by_mpirun(tmp_path / "here")
        host_file(text)
        assert expected, text
        assert hosts.slots() == expected, text
    host_file("# none\n")
    assert hosts.slots() == {}


def test_a_line_that_mpirun_refuses_is_one_line(tmp_path, host_file):
    for text in REFUSED:
        host_file("n9 slots=1\n")
        (tmp_path / "here").write_bytes(text.encode("latin-1"))
        assert counted_by_mpirun(tmp_path / "here") == {}, text
        host_file(text)
        line = 2 if text.startswith("n1") and "\nn1" in text else 1
        with pytest.raises(LabError, match=rf"hosts, line {line}: mpirun .*; write HOST slots=N, once per host$"):
            hosts.slots()


def test_a_host_without_slots_has_its_cores(host_file):
    host_file("localhost\n")
    assert hosts.slots() == {"localhost": resources.cores()}
    env = mpirun.environment() | {VARIABLE: os.environ[VARIABLE]}
    done = subprocess.run([mpirun.command(1)[0], "--display", "map", "--bind-to", "none", "true"], env=env,
                          capture_output=True, text=True, check=True)
    assert f"Num slots: {psutil.cpu_count(logical=False)}" in done.stdout


def test_workers_on_several_nodes_need_tcp_and_those_on_one_do_not_listen(host_file):
    host_file("n1 slots=2\n")
    assert (hosts.nodes(), "^tcp,ofi" in mpirun.command(2)) == (1, True)
    host_file("n1 slots=1\nn2 slots=1\n")
    assert (hosts.nodes(), "^tcp,ofi" in mpirun.command(2)) == (2, False)


def test_slots_of_all_nodes_count(host_file):
    host_file("n1 slots=400\nn2 slots=500\n")
    capacity.check_slots(900)
    with pytest.raises(LabError, match="901 workers on 900 cores would wait for each other"):
        capacity.check_slots(901)


def test_a_host_file_that_is_not_there_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(LabError, match=f"^{VARIABLE} names {tmp_path}/gone: No such file or directory; unset it"):
        hosts.slots()
