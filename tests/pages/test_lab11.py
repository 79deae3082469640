"""Page 11: large batches, sleeps, the plan of a queue with backfill, and what is saved for machines without a Slurm."""

from __future__ import annotations

import numpy as np
import pytest

from labs.pages import lab11
from labs.run.errors import LabError
from tests.notebooks import committed


class NoCluster:
    """A machine that cannot make a cluster."""

    missing = "no slurmctld"


def test_a_short_job_fills_a_gap_and_delays_nobody():
    assert lab11.planned_starts([(2, 20), (4, 30), (1, 15)], 4) == [0, 20, 0]
    assert lab11.planned_starts([(2, 20), (4, 30), (1, 25)], 4) == [0, 20, 50]
    rng = np.random.default_rng(1)
    for _ in range(50):
        jobs = [(int(rng.integers(1, 5)), int(rng.integers(1, 9))) for _ in range(6)]
        starts = lab11.planned_starts(jobs, 4)
        for minute in range(max(starts) + 9):
            running = zip(jobs, starts, strict=True)
            assert sum(n for (n, limit), start in running if start <= minute < start + limit) <= 4
        assert starts[:-1] == lab11.planned_starts(jobs[:-1], 4), "the last in line delays nobody"


def test_without_a_slurm_the_kept_queue_is_shown():
    queue = lab11.Queue(NoCluster())
    assert list(queue.before.index) == list(lab11.JOBS)
    after = queue.shorten("D", 5)
    assert after.loc["D", "start"] < queue.before.loc["D", "start"] - 1
    assert queue.started_after("D") > 0
    assert "PENDING (Priority)" in queue.advice("D", "F")
    figure = lab11.plan_figure({"before": queue.before, "after": after})
    assert all(text.get_text() != "F" for axes in figure.axes for text in axes.texts), "F never starts"
    queue.cancel()


def test_each_job_of_a_plan_has_its_nodes():
    jobs = {"P": (2, 20), "Q": (4, 30), "R": (1, 15)}
    figure = lab11.plan_figure({"plan": lab11.plan_table(jobs, [0, 20, 0])})
    assert sorted(text.get_text() for text in figure.axes[0].texts) == ["P"] * 2 + ["Q"] * 4 + ["R"]


@pytest.mark.parametrize("link", ["100mbit", "1gbit"])
def test_without_a_cluster_a_kept_run_of_two_nodes_is_shown(link):
    run = lab11.Cluster.train(NoCluster(), "lab11_multinode", link)
    assert (run["layout"]["nodes"], run["layout"]["global_batch_size"], run["machine"]["link"]) == (2, 64, link)


def test_a_command_that_fails_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    cluster = lab11.Cluster()
    assert cluster.missing
    assert "the page shows saved runs" in repr(cluster)
    with pytest.raises(LabError, match=r"^no cluster is up; [^\n]*$"):
        cluster.labs("status")
    cluster.stop()


def test_the_page_shows_the_commands_that_submit_the_jobs():
    page = "\n".join("".join(cell["source"]) for cell in committed.cells("lab11_multinode"))
    assert "\n".join(lab11.job_commands()) in page


def test_a_speedup_is_over_one_node():
    runs = [{"layout": {"size": n}, "config": {"seed": seed}, "tables": {"sleep": [
        {"bandwidth": link, "kind": kind, "step_seconds": seconds * n / 10} for kind in ("weak", "strong")
        for link, seconds in (("100mbit", 8.0), ("1gbit", 2.0))]}} for n in (1, 8) for seed in (1, 2)]
    table = lab11.sleep_table(runs)
    assert lab11.sleep_speedups(table, "weak") == {"100mbit": pytest.approx((0.625,) * 3),
                                                   "1gbit": pytest.approx((2.5,) * 3)}, "over the mean of all links"
    assert lab11.sleep_speedups(table, "strong")["1gbit"] == pytest.approx((0.3125,) * 3)
    assert lab11.speedup_text({"1gbit": (2.5, 2.4, 2.61)}) == "S = 2.50 (2.40 to 2.61) at 1 Gbit/s"


def test_a_bar_is_two_standard_errors():
    runs = [{"layout": {"global_batch_size": 128 * workers}, "history": [{"images": 1000, "steps": 8}],
             "config": {"seed": 1, "epochs": 2, "base_batch_size": 128},
             "metrics": {"test_images": 100, "best_epoch": 2, "best_val_accuracy": 0.9, "test_accuracy_at_best": 0.9}}
            for workers in (8, 1)]
    table = lab11.batch_table(runs)
    assert table["workers"].tolist() == [1, 8]
    (axes,) = lab11.batch_figure(table).axes
    test, report = axes.containers
    assert [end[:, 1].tolist() for end in test.lines[2][0].get_segments()] == 2 * [pytest.approx([0.84, 0.96])]
    assert len(report.lines[0].get_xdata()) == 1, "report M has no run of one worker in its table of two nodes"


def test_missing_runs_are_named_with_their_command():
    with pytest.raises(LabError, match="--only sleep"):
        lab11.sleep_table([])
    with pytest.raises(LabError, match="labs sweep lab11 --preset laptop"):
        lab11.batch_table([])
