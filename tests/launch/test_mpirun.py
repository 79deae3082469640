"""mpirun's host file: the number of nodes, their slots, and the command line of mpirun for several."""

from __future__ import annotations

import re
import subprocess

import pytest

from labs.launch import mpirun
from labs.run import resources
from labs.run.errors import LabError

VARIABLE = mpirun.HOST_FILES[0]


@pytest.fixture
def host_file(tmp_path, monkeypatch):
    """Write a host file and have mpirun use it."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    def write(text: str) -> None:
        (tmp_path / "hosts").write_text(text)
        monkeypatch.setenv(VARIABLE, str(tmp_path / "hosts"))

    return write


def test_slots_are_counted_as_mpirun_counts_them(host_file):
    host_file("# two nodes\nn1 slots=2 # a comment\n\nn2.uni.edu slots = 3 max_slots=4\n10.1.2.3 slots=1\n")
    expected = {"n1": 2, "n2.uni.edu": 3, "10.1.2.3": 1}
    assert mpirun.host_slots() == expected
    env = mpirun.environment() | {"PRTE_MCA_plm_ssh_agent": "/bin/false", "PRTE_MCA_ras_base_display_alloc": "1",
                                  "PRTE_MCA_ras_base_verbose": "5"}
    done = subprocess.run([*mpirun.command(1), "true"], env=env, capture_output=True, check=False, text=True)
    shown = (done.stdout + done.stderr).partition("ALLOCATED NODES")[2].partition("\n====")[0]
    assert [int(count) for count in re.findall(r": slots=(\d+)", shown)][-3:] == [*expected.values()]


def test_a_host_file_that_cannot_be_read_is_refused(host_file, monkeypatch, tmp_path):
    host_file("localhost\n")
    assert mpirun.host_slots() == {"localhost": resources.cores()}
    for text in ("# comment\nn1 slots=two\n", "n1\nn1 slots=2\n", "\nn1 slots 2\n"):
        host_file(text)
        with pytest.raises(LabError, match=r"hosts: the kit reads only HOST slots=N, once per host, not 'n1"):
            mpirun.host_slots()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(LabError, match=f"^{VARIABLE} names {tmp_path}/gone: No such file or directory; unset it"):
        mpirun.host_slots()


def test_workers_on_several_nodes_need_tcp_and_the_slots_of_all_count(host_file):
    host_file("n1 slots=2\n")
    assert (mpirun.nodes(), "^tcp,ofi" in mpirun.command(2)) == (1, True)
    host_file("n1 slots=400\nn2 slots=500\n")
    assert (mpirun.nodes(), "^tcp,ofi" in mpirun.command(2)) == (2, False)
    mpirun.check_slots(900)
    with pytest.raises(LabError, match="901 workers on 900 cores would wait for each other"):
        mpirun.check_slots(901)
