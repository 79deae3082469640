"""The queue of lab 11: the plan of a queue with backfill, and what is kept for machines without a Slurm."""

from __future__ import annotations

import numpy as np
import pytest

from labs.pages import slurm_queue
from labs.run.errors import LabError
from tests.notebooks import committed


class NoCluster:
    """A machine that cannot make a cluster."""

    missing = "no slurmctld"


def test_a_short_job_fills_a_gap_and_delays_nobody():
    assert slurm_queue.planned_starts([(2, 20), (4, 30), (1, 15)], 4) == [0, 20, 0]
    assert slurm_queue.planned_starts([(2, 20), (4, 30), (1, 25)], 4) == [0, 20, 50]
    rng = np.random.default_rng(1)
    for _ in range(50):
        jobs = [(int(rng.integers(1, 5)), int(rng.integers(1, 9))) for _ in range(6)]
        starts = slurm_queue.planned_starts(jobs, 4)
        for minute in range(max(starts) + 9):
            running = zip(jobs, starts, strict=True)
            assert sum(n for (n, limit), start in running if start <= minute < start + limit) <= 4
        assert starts[:-1] == slurm_queue.planned_starts(jobs[:-1], 4), "the last in line delays nobody"


def test_squeue_is_read():
    text = ("B|2|batch|4|20:00|PENDING|Resources|2026-11-26T11:11:55||node[1-4]\n"
            "A|1|batch|3|10:00|RUNNING|None|2026-11-26T11:01:55|node[1-3]|(null)\n"
            "F|6|teaching|1|1:00:00|PENDING|PartitionTimeLimit|N/A||(null)\n")
    one, two, six = slurm_queue._read(text)
    assert (one["start"], one["where"], one["limit"]) == (0, "node[1-3]", 10)
    assert (two["start"], two["where"], two["reason"]) == (10, "node[1-4]", "Resources")
    assert (six["start"], six["where"], six["limit"]) == (None, "", 60)
    assert slurm_queue._nodes("node[1-2,4]") == [0, 1, 3]


def test_without_a_slurm_the_kept_queue_is_shown():
    queue = slurm_queue.Queue(NoCluster())
    assert list(queue.before.index) == list(slurm_queue.JOBS)
    after = queue.shorten("D", 5)
    assert after.loc["D", "start"] < queue.before.loc["D", "start"] - 1
    assert queue.started_after("D") > 0
    assert "PENDING (Priority)" in queue.advice("D", "F")
    figure = slurm_queue.plan_figure({"before": queue.before, "after": after})
    assert [axes.get_title() for axes in figure.axes] == ["before", "after"]
    assert all(text.get_text() != "F" for axes in figure.axes for text in axes.texts), "F never starts"
    queue.cancel()


def test_each_job_of_a_plan_has_its_nodes():
    jobs = {"P": (2, 20), "Q": (4, 30), "R": (1, 15)}
    figure = slurm_queue.plan_figure({"plan": slurm_queue.rows(jobs, [0, 20, 0])})
    assert sorted(text.get_text() for text in figure.axes[0].texts) == ["P"] * 2 + ["Q"] * 4 + ["R"]


@pytest.mark.parametrize("link", ["100mbit", "1gbit"])
def test_without_a_cluster_a_kept_run_of_two_nodes_is_shown(link):
    run = slurm_queue.Cluster.train(NoCluster(), "lab11_multinode", link)
    assert (run["layout"]["nodes"], run["layout"]["global_batch_size"], run["machine"]["link"]) == (2, 64, link)


def test_a_command_that_fails_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    cluster = slurm_queue.Cluster()
    assert cluster.missing
    assert "the page shows saved runs" in repr(cluster)
    with pytest.raises(LabError, match=r"^no cluster is up; [^\n]*$"):
        cluster.labs("status")
    cluster.stop()


def test_the_page_shows_the_commands_that_submit_the_jobs():
    page = "\n".join("".join(cell["source"]) for cell in committed.cells("lab11_multinode"))
    assert "\n".join(slurm_queue.commands()) in page
