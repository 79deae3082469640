"""`labs cluster`: its hosts and links, commands on them, and an end that leaves nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from labs.run.paths import ROOT
from labs.tools.cluster import slurm
from tests.tools.cluster.client import Cluster, Process, names, until

HOSTS = {"node1": "10.77.0.1", "node2": "10.77.0.2", "head": "10.77.0.254"}
TRANSFER = Path(__file__).with_name("transfer.py")
MANY = 30


def read_links(cluster: Cluster) -> dict[str, str]:
    """Return the links that `labs cluster status` shows, by node."""
    return dict(re.findall(r"^(node\d+) +\S+ +\S+ +(.+)$", cluster.labs("status").stdout, re.MULTILINE))


def send(cluster: Cluster, source: str, target: str, megabytes: float) -> float:
    """Return the seconds of a transfer between two nodes."""
    return float(cluster.on(source, sys.executable, TRANSFER, "send", target, megabytes))


def assert_nothing_is_left(cluster: Cluster, seconds: float = 10) -> None:
    until(lambda: not cluster.processes(), seconds, lambda: names(cluster.processes()))
    assert not cluster.folder.exists()


def test_a_host_has_its_own_name_address_and_tmp_and_nodes_have_their_cores(two):
    look = """import json, os, socket
print(json.dumps([socket.gethostname(), {name: socket.gethostbyname(name) for name in ("node1", "node2", "head")},
                  sorted(os.sched_getaffinity(0)), [os.path.exists(path) for path in PATHS]]))"""
    mine = [f"/{folder}/of-node1-{os.getpid()}" for folder in ("tmp", "dev/shm")]
    two.on("node1", "touch", *mine)
    there = sorted(os.sched_getaffinity(0))
    cores = {"node1": there[:1], "node2": [there[1 % len(there)]], "head": there}
    for host in HOSTS:
        seen = json.loads(two.on(host, sys.executable, "-c", look.replace("PATHS", repr(mine))))
        assert seen == [host, HOSTS, cores[host], [host == "node1"] * 2]
    assert not any(map(os.path.exists, mine))


@pytest.mark.parametrize("host", ["head", "node2"])
def test_a_command_is_run_as_if_it_were_run_here(two, tmp_path, host):
    script = 'echo "$1"; pwd; hostname; echo "$COLOUR" >&2; exit 7'
    words = ["sh", "-c", script, "-", "a  'b' $c"]
    done = two.labs("shell", *[host] * (host != "head"), "--", *words, cwd=tmp_path, code=7, COLOUR="red  blue")
    assert done.stdout == f"a  'b' $c\n{tmp_path}\n{host}\n"
    assert done.stderr == "red  blue\n"


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


@pytest.mark.alone  # Other tests take the processor time that sender and receiver need.
def test_links_have_their_bandwidth_in_each_direction_until_they_are_cut(two):
    """Two megabytes are 0.8 s at 20 Mbit/s, less what the bucket holds."""
    with (two.start("shell", "node1", "--", sys.executable, "-u", TRANSFER, "receive") as first,
          two.start("shell", "node2", "--", sys.executable, "-u", TRANSFER, "receive") as second):
        try:
            assert [each.stdout.readline() for each in (first, second)] == ["ready\n"] * 2
            assert send(two, "node1", "node2", 2) < 0.6
            two.labs("link", "node2", "--bandwidth", "20mbit")
            assert read_links(two) == {"node1": "unlimited", "node2": "20mbit"}
            assert min(send(two, "node1", "node2", 2), send(two, "node2", "node1", 2)) > 0.6
            two.labs("link", "node2", "--down")
            assert read_links(two) == {"node1": "unlimited", "node2": "20mbit, down"}
            done = two.labs("shell", "node1", "--", sys.executable, TRANSFER, "send", "node2", 0, code=1)
            assert re.search(r"TimeoutError|No route to host", done.stderr)
            two.labs("link", "--bandwidth", "unlimited", "--up")
            assert send(two, "node1", "node2", 2) < 0.6
        finally:
            first.terminate()
            second.terminate()


ON_A_CLUSTER = {
    "up": "a cluster is already up; `labs cluster down` ends it",
    "shell node1 -- labs cluster up": "this is a host of the cluster; leave it with `exit` first",
    "link node1 node9 --down": "unknown node 'node9'; there are: node1, node2",
    "link": "say what to change: .*",
    "link --bandwidth 10": "'10' is not a bandwidth from 100kbit to 100gbit; write 100mbit, 1gbit or unlimited",
    "run lab10 --results /tmp/nowhere": "results folder /tmp/nowhere: each node has its own /tmp; .* --share .*",
}
WITHOUT_ONE = {
    "up --nodes 100": "--nodes 100: a cluster has 1 to 64 nodes",
    "up --cores 9999": r"--cores 9999: this machine has \d+",
    "up --cpus 4": "--cpus, --gpus and --partitions are for Slurm; add --slurm",
    "up --share /etc": "--share '/etc' is not below /tmp; .*",
    **dict.fromkeys(["status", "link --up", "run lab10", "shell"],
                    "no cluster is up; start one with `labs cluster up --nodes 2`"),
}


@pytest.mark.parametrize(("up", "words", "line"), [
    *((True, *each) for each in ON_A_CLUSTER.items()), *((False, *each) for each in WITHOUT_ONE.items())])
def test_a_mistake_is_refused_in_one_line_and_changes_nothing(request, up, words, line):
    cluster = request.getfixturevalue("two" if up else "free")
    before = cluster.labs("status", code=None).stdout
    done = cluster.labs(*words.split(), code=1)
    assert (done.stdout, re.fullmatch(f"labs: error: {line}\n", done.stderr) and "") == ("", ""), done.stderr
    assert cluster.labs("status", code=None).stdout == before


def test_a_folder_with_other_files_is_not_touched(free):
    """At its end a cluster deletes its folder."""
    free.folder.mkdir()
    file = free.folder / "thesis.tex"
    file.touch()
    assert "has other files; set LABS_CLUSTER to a path that does not exist" in free.labs("up", code=1).stderr
    assert file.exists()
    file.unlink()


@pytest.mark.parametrize("how", ["down", "killed"])
def test_the_end_leaves_nothing(free, unchanged, how):
    free.labs("up", "--nodes", 2, "--bandwidth", "1gbit")
    shells = [free.start("shell", host, "--", "sleep", "86399") for host in ("head", "node1", "node2")]
    free.on("node2", "sh", "-c", "setsid sleep 86399 >/dev/null 2>&1 &")  # A daemon.
    until(lambda: sum("86399" in line for line in names(free.processes())) >= 4)
    if how == "down":
        assert free.labs("down").stdout == "the cluster has ended\n"
    else:
        psutil.Process(int((free.folder / "head.pid").read_text().split()[0])).kill()
    for shell in shells:
        with shell:
            shell.communicate(timeout=10)
    until(lambda: not free.processes(), 10, lambda: names(free.processes()))
    assert "no cluster is up" in free.labs("status", code=1).stderr
    free.labs("up", "--nodes", 1)
    assert free.on("node1", "hostname") == "node1"
    free.labs("down")
    assert free.labs("down").stdout == "no cluster was up\n"
    assert_nothing_is_left(free)


def test_a_process_that_got_the_number_of_a_killed_head_is_let_live(free):
    free.labs("up")
    number, began = (free.folder / "head.pid").read_text().split()
    psutil.Process(int(number)).kill()
    with Process(["sleep", "86399"]) as other:
        (free.folder / "head.pid").write_text(f"{other.pid} {began}\n")
        assert free.labs("down").stdout == "no cluster was up\n"
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize(("number", "stage"), [(signal.SIGINT, "hosts"), (signal.SIGKILL, "hosts"),
                                               (signal.SIGKILL, "hostfile")])
def test_a_start_that_is_ended_leaves_nothing_and_meanwhile_a_second_is_refused(free, unchanged, number, stage):
    with free.start("up", "--nodes", MANY, "--bandwidth", "1gbit", "--slurm") as up:
        until(lambda: (free.folder / stage).exists() or up.poll() is not None)
        assert "another `labs cluster up` or `down` is at work; try again" in free.labs("up", code=1).stderr
        assert up.poll() is None, up.communicate()
        up.send_signal(number)
        _, errors = up.communicate(timeout=20)
    assert up.returncode == (130 if number == signal.SIGINT else -number), errors
    assert "Traceback" not in errors
    until(lambda: not free.processes(), 30, lambda: names(free.processes()))
    free.labs("up", "--nodes", 1)
    free.labs("down")
    assert_nothing_is_left(free)


AS_USER = ["unshare", "--user", "--map-user=65534", "--map-group=65534"]
if os.geteuid() == 0:  # Then /run/mount is ours, where `mount` keeps notes; a user may not write there.
    NOT_OURS = 'mkdir -p /run/mount && mount -t tmpfs -o uid=1,mode=755 labs /run/mount && exec "$@"'
    AS_USER = ["unshare", "--mount", "sh", "-c", NOT_OURS, "-", *AS_USER]
USER = f"""
labs() {{{{ "{sys.executable}" -m labs "$@"; }}}}
set -e
id -u
labs cluster up --nodes 2 --slurm --cpus 3 --bandwidth 100mbit --share {{folder}}
labs cluster link node1 --down
labs cluster link node1 --up
labs cluster shell node2 -- hostname
labs cluster shell -- sbatch --wait -N2 --output={{folder}}/job --wrap 'srun hostname; id -u'
cat {{folder}}/job
labs cluster down
"""


@pytest.mark.slurm
@pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing())
def test_an_ordinary_user_has_a_cluster_in_a_user_namespace(free, unchanged, tmp_path):
    with Process([*AS_USER, "bash", "-c", USER.format(folder=tmp_path)], cwd=ROOT, env=free.environment(), text=True,
                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        output, _ = process.communicate(timeout=240)
    if process.returncode and "unshare failed" in output:
        pytest.skip("this machine makes no user namespaces")
    lines = output.splitlines()
    assert (process.returncode, lines[0], lines[-1]) == (0, "65534", "the cluster has ended"), output
    assert re.search(r"^node1 .* 100mbit, down$", output, re.MULTILINE)
    assert [lines.count(line) for line in ("node1", "node2", "65534")] == [1, 2, 2], output
    assert_nothing_is_left(free)
