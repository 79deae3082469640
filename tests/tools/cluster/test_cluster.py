"""`labs cluster`: its hosts and links, commands on them, and an end that leaves nothing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from labs.run.paths import ROOT, search_path

HOSTS = {"node1": "10.77.0.1", "node2": "10.77.0.2", "head": "10.77.0.254"}


def describe_machine() -> list[str]:
    """Return what a cluster must not change on the machine outside it."""
    return [Path(file).read_text() for file in ("/etc/hosts", "/proc/sys/kernel/hostname", "/proc/net/route",
                                                "/proc/self/mounts")]


def test_a_host_has_its_own_name_address_and_files_and_nodes_have_their_cores(two):
    look = """import json, os, socket, tempfile
print(json.dumps([socket.gethostname(), {name: socket.gethostbyname(name) for name in ("node1", "node2", "head")},
                  sorted(os.sched_getaffinity(0)),
                  [os.path.exists(path + "/of-node1") for path in (tempfile.gettempdir(), "/dev/shm")]]))"""
    two.on("node1", "sh", "-c", "touch $TMPDIR/of-node1 /dev/shm/of-node1")
    there = sorted(os.sched_getaffinity(0))
    cores = {"node1": there[:1], "node2": [there[1 % len(there)]], "head": there}
    for host in HOSTS:
        seen = json.loads(two.on(host, sys.executable, "-c", look))
        assert seen == [host, HOSTS, cores[host], [host == "node1"] * 2]


@pytest.mark.parametrize("host", ["head", "node2"])
def test_a_command_is_run_as_if_it_were_run_here(two, tmp_path, host):
    script = 'echo "$1"; pwd; hostname; echo "$COLOUR" >&2; exit 7'
    words = ["sh", "-c", script, "-", "a  'b' $c"]
    done = two.labs("shell", *[host] * (host != "head"), "--", *words, cwd=tmp_path, code=7, COLOUR="red  blue")
    assert (done.stdout, done.stderr) == (f"a  'b' $c\n{tmp_path}\n{host}\n", "red  blue\n")


def test_ctrl_c_reaches_the_command_once_and_a_kill_ends_it(two):
    """The terminal sends Ctrl-C to all processes of its foreground group."""
    before = two.processes()
    script = 'trap "echo caught; exit 3" INT; echo ready; while :; do sleep 0.1; done'
    with two.start("shell", "node1", "--", "bash", "-c", script) as shell:
        assert shell.stdout.readline() == "ready\n"
        os.killpg(shell.pid, signal.SIGINT)
        assert (*shell.communicate(timeout=10), shell.returncode) == ("caught\n", "", 3)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with two.start("shell", "node2", "--", "sh", "-c", "echo ready; exec sleep 86399") as shell:
            assert shell.stdout.readline() == "ready\n"
            shell.send_signal(number)
        two.wait_until_idle(before)


MISTAKES = {
    "up": "a cluster is already up; `labs cluster down` ends it",
    "up --cores 9999": r"--cores 9999: this machine has \d+",
    "shell node1 -- labs cluster down": "this is a host of the cluster; leave it with `exit` first",
    "link node1 node9 --down": "unknown node 'node9'; there are: node1, node2",
    "link --bandwidth 10": "'10' is not a bandwidth from 100kbit to 100gbit; write 100mbit, 1gbit or unlimited",
}


def test_a_mistake_is_refused_in_one_line_and_changes_nothing(two):
    before = two.labs("status").stdout
    for words, line in MISTAKES.items():
        done = two.labs(*words.split(), code=1)
        assert (done.stdout, bool(re.fullmatch(f"labs: error: {line}\n", done.stderr))) == ("", True), done.stderr
    assert two.labs("status").stdout == before


@pytest.mark.parametrize("how", ["down", "killed"])
def test_the_end_leaves_nothing_and_touches_nobody_elses(free, how):
    before = describe_machine()
    free.folder.mkdir()
    assert "set LABS_CLUSTER to a path that does not exist" in free.labs("up", code=1).stderr
    free.folder.rmdir()
    free.labs("up", "--nodes", 2, "--bandwidth", "1gbit")
    free.on("node2", "sh", "-c", "setsid sleep 86399 >/dev/null 2>&1 &")  # A daemon.
    if how == "down":
        assert free.labs("down").stdout == "the cluster has ended\n"
    else:
        state = json.loads((free.folder / "cluster.json").read_text())
        psutil.Process(state["head"][0]).kill()
        free.wait_until_idle()
        state["head"][0] = os.getpid()  # A later process, which got the same number.
        (free.folder / "cluster.json").write_text(json.dumps(state))
        free.labs("up", "--nodes", 1)
        assert free.on("node1", "hostname") == "node1"
        free.labs("down")
    assert free.labs("down").stdout == "no cluster was up\n"
    assert "no cluster is up; start one with `labs cluster up" in free.labs("run", "lab10", code=1).stderr
    free.wait_until_idle()
    assert (describe_machine(), free.folder.exists()) == (before, False)


AS_USER = ["unshare", "--user", "--map-user=65534", "--map-group=65534"]
USER = f"""
labs() {{{{ "{sys.executable}" -m labs cluster "$@"; }}}}
set -e
labs up --nodes 2 --slurm --cpus 3 --bandwidth 100mbit
labs link node1 --down
labs link node1 --up
labs shell node2 -- hostname
labs shell -- sbatch --wait -N2 --output={{folder}}/job --wrap 'srun hostname; id -u'
cat {{folder}}/job
labs down
"""


@pytest.mark.slurm
@pytest.mark.skipif(not shutil.which("slurmd", path=search_path()), reason="no Slurm on this machine")
def test_an_ordinary_user_has_a_cluster_in_a_user_namespace(free, tmp_path):
    if subprocess.run([*AS_USER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine makes no user namespaces")
    done = subprocess.run([*AS_USER, "bash", "-c", USER.format(folder=tmp_path)], cwd=ROOT, env=free.environment(),
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=240, check=False)
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[-1]) == (0, "the cluster has ended"), done.stdout + done.stderr
    assert re.search(r"^node1 .* 100mbit, down$", done.stdout, re.MULTILINE)
    assert [lines.count(line) for line in ("node1", "node2", "65534")] == [1, 2, 1], done.stdout
