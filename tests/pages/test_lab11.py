"""Page 11's queue: the plan with backfill, and what is saved for machines without a Slurm."""

import numpy as np

from labs.pages import lab11, laws
from tests.notebooks import committed


class NoCluster:
    """A machine that cannot make a cluster."""

    missing = "no slurmctld"


def test_a_short_job_fills_a_gap_and_delays_nobody():
    assert laws.planned_starts([(2, 20), (4, 30), (1, 15)], 4) == [0, 20, 0]
    assert laws.planned_starts([(2, 20), (4, 30), (1, 25)], 4) == [0, 20, 50]
    rng = np.random.default_rng(1)
    for _ in range(50):
        jobs = [(int(rng.integers(1, 5)), int(rng.integers(1, 9))) for _ in range(6)]
        starts = laws.planned_starts(jobs, 4)
        assert starts[:-1] == laws.planned_starts(jobs[:-1], 4), "the last in line delays nobody"


def test_without_a_slurm_the_saved_queue_and_runs_are_shown():
    queue = lab11.Queue(NoCluster())
    assert list(queue.before.index) == list(lab11.JOBS)
    after = queue.shorten("D", 5)
    assert after.loc["D", "start"] < queue.before.loc["D", "start"] - 1
    assert queue.started_after("D") > 0
    assert "PENDING (Priority)" in queue.advice("D", "F")
    texts = [text.get_text() for axes in lab11.plan_figure({"before": queue.before, "after": after}).axes
             for text in axes.texts]
    assert (texts.count("B"), texts.count("F")) == (8, 0), "a box per node of B in both plans; F never starts"
    run = lab11.Cluster.train(NoCluster(), "lab11_multinode", "1gbit")
    assert (run["layout"]["nodes"], run["layout"]["global_batch_size"], run["machine"]["link"]) == (2, 64, "1gbit")


def test_the_page_shows_the_commands_that_submit_the_jobs():
    page = "\n".join("".join(cell["source"]) for cell in committed.cells("lab11_multinode"))
    assert "\n".join(lab11.job_commands()) in page
