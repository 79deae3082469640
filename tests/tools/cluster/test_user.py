"""An ordinary user's cluster: everything in one user namespace, as for someone who is not root on a machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from labs.run.paths import ROOT
from labs.tools.cluster import slurm
from tests.tools.cluster.client import Cluster, Process, names, until
from tests.tools.cluster.test_links import TRANSFER

AS_USER = ["unshare", "--user", "--map-user=65534", "--map-group=65534"]
if os.geteuid() == 0:  # Then /run/mount is ours, where `mount` keeps notes; a user may not write there.
    NOT_OURS = 'mkdir -p /run/mount && mount -t tmpfs -o uid=1,mode=755 labs /run/mount && exec "$@"'
    AS_USER = ["unshare", "--mount", "sh", "-c", NOT_OURS, "-", *AS_USER]
LINKS = f"""
labs cluster link node2 --bandwidth 20mbit
labs cluster link node1 --down
labs cluster status
labs cluster link node1 --up
labs cluster shell node2 -- {sys.executable} -u {TRANSFER} receive >{{folder}}/receiver &
until grep -q ready {{folder}}/receiver; do sleep 0.1; done
labs cluster shell node1 -- {sys.executable} {TRANSFER} send node2 2
"""
SLURM = """
labs cluster shell -- sinfo --noheader --Node --format='%N has %c CPUs and is %T'
labs cluster shell -- srun -N2 hostname
labs cluster shell -- sbatch --wait -N2 --output={folder}/job --wrap 'srun hostname; id -u'
cat {folder}/job
"""


@pytest.fixture
def user(free, tmp_path):
    """Run lines of bash as an ordinary user who has no cluster; return what they print."""
    if subprocess.run([*AS_USER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine makes no user namespaces")

    def run(lines: str) -> str:
        script = f'labs() {{ "{sys.executable}" -m labs "$@"; }}\nset -e\n{lines.format(folder=tmp_path)}'
        with Process([*AS_USER, "bash", "-c", script], cwd=ROOT, env=free.environment(), text=True,
                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output
        return output

    return run


def assert_nothing_is_left(cluster: Cluster) -> None:
    until(lambda: not cluster.processes(), 10, lambda: names(cluster.processes()))
    assert not cluster.folder.exists()


@pytest.mark.workers
def test_a_user_has_nodes_and_links_and_trains(user, free, unchanged, tmp_path):
    output = user(f"""id -u
        labs cluster up --nodes 2 --bandwidth 100mbit --share {tmp_path}
        labs cluster shell node2 -- hostname
        labs cluster run lab10 --image-size 16 --epochs 1 --results {tmp_path} --name it
        {LINKS}
        labs cluster down
        labs cluster status || echo "exit code $?"
    """)
    lines = output.splitlines()
    assert lines[0] == "65534"
    assert {"node2", "the cluster has ended", "exit code 1"} <= {*lines}
    assert re.search(r"^node1 .* 100mbit, down\nnode2 .* 20mbit$", output, re.MULTILINE)
    (seconds,) = [float(line) for line in lines if re.fullmatch(r"[\d.e-]+", line) and "." in line]
    assert seconds > 0.6
    assert "2 workers on 2 nodes" in output
    assert (tmp_path / "lab10_caltech/it/record.json").exists()
    assert "Traceback" not in output
    assert_nothing_is_left(free)


@pytest.mark.slurm
@pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing())
def test_a_user_has_slurm(user, free, unchanged, tmp_path):
    output = user(f"""
        labs cluster up --nodes 2 --slurm --cpus 3 --share {tmp_path}
        {SLURM}
        labs cluster down
    """)
    assert "node1 has 3 CPUs and is idle\nnode2 has 3 CPUs and is idle\n" in output
    assert sorted(re.findall(r"^node\d$", output, re.MULTILINE)) == ["node1", "node1", "node2", "node2"]
    assert re.search(r"^65534$", output, re.MULTILINE), "the job is not its owner's"
    assert_nothing_is_left(free)
