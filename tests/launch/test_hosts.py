"""mpirun's host file: the number of nodes, and the command line of mpirun for several."""

from __future__ import annotations

import pytest

from labs.launch import capacity, hosts, mpirun
from labs.run.errors import LabError

VARIABLE = "PRTE_MCA_prte_default_hostfile"


@pytest.fixture
def host_file(tmp_path, monkeypatch):
    """Write a host file and have mpirun use it."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    def write(text: str) -> None:
        (tmp_path / "hosts").write_text(text)
        monkeypatch.setenv(VARIABLE, str(tmp_path / "hosts"))

    return write


@pytest.mark.parametrize(("text", "slots"), [
    ("n1 slots=2\nn2 slots=3 max_slots=4\n", {"n1": 2, "n2": 3}),
    ("# two nodes\nn1\n\nn2 # the slow one\nn1\n", {"n1": 2, "n2": 1}),
    ("", {}),
])
def test_slots_by_node(host_file, text, slots):
    host_file(text)
    assert hosts.slots() == slots


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
