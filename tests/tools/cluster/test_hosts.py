"""The hosts of a cluster: what each has for itself, what all share, and commands that run on them."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.tools.cluster.client import names, until

HOSTS = {"node1": "10.77.0.1", "node2": "10.77.0.2", "head": "10.77.0.254"}
OF_INTERFACE = {"node1": "eth0", "node2": "eth0", "head": "switch"}


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_has_its_own_name_and_address(two, host):
    assert two.on(host, "hostname") == host
    assert f" {HOSTS[host]}/24 " in two.on(host, "ip", "-4", "-o", "addr", "show", OF_INTERFACE[host])
    look = "import json, socket; print(json.dumps({name: socket.gethostbyname(name) for name in " \
           f"{[*HOSTS, 'localhost']}}}))"
    assert json.loads(two.on(host, sys.executable, "-c", look)) == HOSTS | {"localhost": "127.0.0.1"}
    assert socket.gethostname() != host


def test_a_file_in_a_folder_of_one_host_is_on_no_other(two):
    for folder in ("/tmp", "/dev/shm"):
        file = Path(folder) / f"of-node1-{os.getpid()}"
        two.on("node1", "touch", file)
        assert [two.labs("shell", host, "--", "test", "-e", file, code=None).returncode for host in HOSTS] == [0, 1, 1]
        assert not file.exists()


def test_all_hosts_see_a_shared_folder_and_no_other_one(free, tmp_path):
    shared, other = tmp_path / "my shared folder", tmp_path / "other"
    shared.mkdir()
    other.mkdir()
    free.labs("up", "--share", shared)
    for host in HOSTS:
        free.on(host, "touch", shared / host)
        assert free.labs("shell", host, "--", "ls", other, code=None).returncode == 2
    assert sorted(file.name for file in shared.iterdir()) == sorted(HOSTS)


def test_a_node_runs_on_its_cores(two):
    """Nodes take the machine's cores in turn."""
    there = sorted(os.sched_getaffinity(0))
    look = "import os; print(sorted(os.sched_getaffinity(0)))"
    for number, node in enumerate(("node1", "node2")):
        core = there[number % len(there)]
        assert two.on(node, sys.executable, "-c", look) == f"[{core}]"
        assert f"\n{node}  {HOSTS[node]}  1      unlimited\n" in two.labs("status").stdout


@pytest.mark.parametrize("host", [(), ("node2",)], ids=str)
def test_a_command_is_run_as_if_it_were_run_here(two, tmp_path, host):
    script = 'echo "$1"; pwd; echo "$COLOUR" >&2; exit 7'
    words = ["sh", "-c", script, "-", "a  'b' $c"]
    done = two.labs("shell", *host, "--", *words, cwd=tmp_path, code=7, COLOUR="red  blue")
    assert done.stdout == f"a  'b' $c\n{tmp_path}\n"
    assert done.stderr == "red  blue\n"


def test_a_command_without_dashes_is_run(two):
    assert two.labs("shell", "node2", "hostname").stdout == "node2\n"
    assert two.labs("shell", "hostname").stdout == "head\n"


@pytest.mark.parametrize(("host", "number"), [("head", signal.SIGTERM), ("node2", signal.SIGHUP),
                                              ("node2", signal.SIGKILL)])
def test_a_signal_ends_the_command(two, number, host):
    before = set(two.processes())
    with two.start("shell", host, "--", "sleep", "86399") as shell:
        until(lambda: [each for each in two.processes() if each not in before and each.name() == "sleep"])
        shell.send_signal(number)
        assert shell.wait(10) == (-number if number == signal.SIGKILL else 128 + number)
    until(lambda: set(two.processes()) <= before, 10, lambda: names(two.processes()))


def test_ctrl_c_reaches_the_command_once_and_the_command_decides(two):
    """The terminal sends it to all processes of its foreground group."""
    script = 'trap "echo caught; exit 3" INT; echo ready; while :; do sleep 0.1; done'
    with two.start("shell", "node1", "--", "bash", "-c", script) as shell:
        assert shell.stdout.readline() == "ready\n"
        os.killpg(shell.pid, signal.SIGINT)
        assert shell.communicate(timeout=10) == ("caught\n", "")
    assert shell.returncode == 3


def test_a_host_starts_no_cluster(two):
    done = two.labs("shell", "node1", "--", sys.executable, "-m", "labs", "cluster", "up", code=1)
    assert done.stderr == "labs: error: this is a host of the cluster; leave it with `exit` first\n"
