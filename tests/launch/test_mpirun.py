"""mpirun's host file: the number of nodes, their slots, and the command line of mpirun for several."""

import re
import socket
import subprocess
from pathlib import Path

import pytest

from labs.run import mpirun, supervisor
from labs.run.errors import LabError


def test_slots_are_counted_as_mpirun_counts_them(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv(mpirun.HOST_FILE, str(tmp_path / "hosts"))
    (tmp_path / "hosts").write_text("n1 slots=2\n")
    assert (mpirun.nodes(), "^tcp,ofi" in mpirun.command(2)) == (1, True)
    (tmp_path / "hosts").write_text("n1 slots=2\nn2.uni.edu slots=3\n")
    assert (mpirun.nodes(), "^tcp,ofi" in mpirun.command(2)) == (2, False)
    env = mpirun.environment() | {"PRTE_MCA_plm_ssh_agent": "/bin/false", "PRTE_MCA_ras_base_display_alloc": "1",
                                  "PRTE_MCA_ras_base_verbose": "5"}
    done = subprocess.run([*mpirun.command(1), "true"], env=env, capture_output=True, check=False, text=True)
    shown = (done.stdout + done.stderr).partition("ALLOCATED NODES")[2].partition("\n====")[0]
    assert [int(count) for count in re.findall(r": slots=(\d+)", shown)][-2:] == [*mpirun.host_slots().values()]
    assert mpirun.choose_workers(5, oversubscribe=False) == 5
    with pytest.raises(LabError, match="6 workers on 5 cores would wait for each other"):
        mpirun.choose_workers(6, oversubscribe=False)


def test_what_a_killed_launcher_left_hinders_none_that_gets_its_process_number(tmp_path):
    last, host = int(Path("/proc/loadavg").read_text().split()[-1]), socket.gethostname()
    for number in range(last, last + 1000):
        (tmp_path / f"ompi.{number}").mkdir()
        (tmp_path / f"ompi.{number}/pmix.{host}.tool.{number}").touch()
    env = mpirun.environment() | {"TMPDIR": str(tmp_path)}
    assert supervisor.complete([*mpirun.command(1, env), "true"], 60, env).code == 0
