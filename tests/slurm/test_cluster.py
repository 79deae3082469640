"""The test cluster itself: it is real, keeps to itself and leaves nothing behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.slurm.client import ROOT, processes, until
from tests.slurm.cluster import environment, missing

pytestmark = pytest.mark.slurm


def test_two_nodes_are_idle(slurm):
    listed = slurm.run("sinfo", "--noheader", "--Node", "--format=%N %T")
    assert listed.splitlines() == ["node1 idle", "node2 idle"]


def test_it_listens_on_loopback_only(slurm):
    listening = [
        line.split()[1]
        for table in ("tcp", "tcp6")
        for line in Path("/proc/net", table).read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    ]
    for port in re.findall(r"Port=(\d+)", slurm.conf.read_text()):
        assert [a for a in listening if a.endswith(f":{int(port):04X}")] == [f"0100007F:{int(port):04X}"]


@pytest.mark.skipif(bool(missing()), reason=f"no Slurm to test with: {missing()}")
@pytest.mark.parametrize("end", ["eof", signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left(tmp_path, end):
    # Four nodes beside the two of the other tests; stopped in the middle of a job.
    cluster = subprocess.Popen(
        [sys.executable, "-m", "tests.slurm.cluster", "--nodes=4", "--until-eof"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    conf = Path(cluster.stdout.readline().strip().partition("=")[2])
    subprocess.run(
        ["sbatch", "-N4", "--output=/dev/null", "--wrap", "srun sleep 86399"],
        env=environment(conf),
        cwd=tmp_path,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    until(lambda: len(processes(conf, "sleep")) == 4)
    cluster.stdin.close() if end == "eof" else cluster.send_signal(end)
    time.sleep(0.1)
    if end == signal.SIGINT:
        cluster.send_signal(end)  # The impatient Ctrl-C.
    cluster.wait(timeout=30)
    assert not processes(conf)
    assert not conf.parent.exists()
