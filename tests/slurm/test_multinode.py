"""Labs over four nodes of a real cluster: what the layouts of a sweep say together, and a requeue."""

from __future__ import annotations

import json
import re
import sys
import time

import pytest

from labs import lab11_multinode as lab
from labs.results import records, scaling
from tests.slurm.client import Job
from tests.slurm.test_preemption import SMALL, epochs, finish

pytestmark = pytest.mark.slurm


def test_a_sweep_over_nodes_asks_for_them_and_the_report_has_rows_by_nodes(four, tmp_path):
    command = [sys.executable, "-m", "labs", "sweep", "lab11", "--preset", "paper", "--only", "strong", "--data",
               "embedded", "--images", "256", "--workers", "1,2", "--repeats", "1", "--results", tmp_path]
    listed = four.run(*command, "--list", "--oversubscribe")
    assert "workers 2  nodes 2  skipped: needs 2 x 1 (nodes x tasks on each); --sbatch asks for them" in listed
    text = four.run(*command, "--sbatch", SBATCH_OUTPUT=f"{tmp_path}/%x-%A.out")
    (report,) = re.findall(r"^2 runs of lab11_multinode are jobs \d+, \d+, the report after them is job (\d+); ", text)
    assert Job(four, report, tmp_path / f"report-{report}.out").wait(200) == "COMPLETED"
    frame = records.load("lab11_multinode", tmp_path)
    assert frame["global_batch_size"].tolist() == [128, 128]
    rows = scaling.speedups(frame, scaling="strong")
    assert rows["nodes"].tolist() == [1, 2]
    assert rows["speedup"].notna().all()
    page = (tmp_path / "report.html").read_text()
    assert "Nodes on one machine share its cores" in page
    assert lab.STRONG.partition(": ")[2].capitalize() in page  # A6 is in words.


@pytest.mark.timeout(500)
def test_a_requeue_in_the_middle_of_a_run_on_four_nodes_is_survived(four, tmp_path):
    """As an administrator, or a node that breaks, would do it: without a signal before."""
    job = four.submit("-N4", "jobs/lab10_caltech.sh", "--epochs", 20, *SMALL, "--results", tmp_path,
                      output=tmp_path / "out")
    deadline = time.monotonic() + 150
    while len(epochs(job.text())) < 3:
        assert time.monotonic() < deadline, job.text()
        time.sleep(0.2)
    four.run("scontrol", "requeue", job.number)
    assert finish(four, job, 300) == "COMPLETED", job.text()
    done = epochs(job.text())
    assert sorted(set(done)) == list(range(1, 21))
    assert len(done) <= 21, "more than the last epoch was trained twice"
    assert "resumed after epoch" in job.text()
    record = json.loads((tmp_path / f"lab10_caltech/lab10_caltech-{job.number}/record.json").read_text())
    assert record["layout"]["hosts"] == ["node1", "node2", "node3", "node4"]
