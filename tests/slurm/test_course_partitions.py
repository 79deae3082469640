"""The partitions of `labs cluster up --partitions course`, and lab 11's six jobs in their queue."""

from __future__ import annotations

import pytest

from labs.pages import lab11
from tests.slurm.client import unavailable

pytestmark = pytest.mark.slurm


@pytest.fixture
def cluster():
    """Four nodes with Slurm, as the page starts them."""
    if reason := unavailable():
        pytest.skip(f"no Slurm to test with: {reason}")
    made = lab11.Cluster()
    yield made
    made.stop()


@pytest.mark.timeout(900)
def test_slurm_plans_the_six_jobs_as_the_page_says_and_a_shorter_limit_starts_earlier(cluster, monkeypatch):
    rows = cluster.shell("sinfo --noheader --format='%P %l %D %s %p'").splitlines()
    assert sorted(rows) == ["batch* 1-00:00:00 4 1-infinite 1", "dgx 4:00:00 1 1-infinite 1", "teaching 30:00 4 1 2"]
    monkeypatch.setitem(lab11.SLEEPS, "E", 600)  # On a busy machine, it must not end before the plan is read.
    monkeypatch.setattr(lab11, "SETTLED", 600)
    monkeypatch.setattr(lab11, "PATIENCE", 100)
    queue = lab11.Queue(cluster)
    jobs = [(nodes, limit) for _, nodes, limit in lab11.JOBS.values()][:-1]
    assert queue.before["start"].tolist()[:-1] == pytest.approx(lab11.planned_starts(jobs, lab11.NODES), abs=1.5)
    assert queue.before["start"].isna().tolist() == [False] * 5 + [True]
    assert queue.before.loc[["B", "D", "F"], "reason"].tolist() == ["Resources", "Priority", "PartitionTimeLimit"]
    assert "it never starts" in queue.advice("D", "F")
    assert queue.shorten("D", 5).loc["D", "start"] == pytest.approx(5, abs=1.5)
    cluster.shell("scancel --name=E")
    queue.started_after("D")
    rows = cluster.shell("squeue --noheader --name=A,B,D --format='%j %T'").splitlines()
    assert sorted(rows) == ["A RUNNING", "B PENDING", "D RUNNING"], "D passed B, which waits for A"
