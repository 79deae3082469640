"""The studies that set the links of a cluster: lab 5's all-reduces and steps, lab 11's sleeps, and sweeps."""

from pathlib import Path

import pytest
from filelock import FileLock

from labs.pages import lab05
from labs.results import records
from labs.run import cluster_state
from tests.tools.cluster.client import Cluster

pytestmark = [pytest.mark.workers, pytest.mark.slow]


def study(cluster: Cluster, lab: str, results: Path, *words: object) -> records.Record:
    """Run a study, check that the links have their bandwidth back, and return its record."""
    before = cluster.labs("status").stdout
    cluster.labs("run", lab, *words, "--results", results, "--name", "it", seconds=840)
    assert cluster.labs("status").stdout == before
    (record,) = records.read_all(root=results)
    return record


@pytest.mark.alone  # Other tests take the processor time that the messages need.
def test_an_all_reduce_uses_the_whole_link_and_sends_a_rings_bytes(two, tmp_path):
    """A slow link: what the processor needs does not show. With Open MPI's own limits the share is 0.7."""
    record = study(two, "lab05", tmp_path, "--study", "links", "--bandwidths", "20mbit", "--largest-mb", "1",
                   "--seconds", "0.1")
    (row,) = lab05.link_shares([record]).to_dict("records")
    assert 0.77 < row["share"] < 1.05
    assert row["bytes_over_ring"] == pytest.approx(1, abs=0.1)
    assert record["layout"]["nodes"] == 2


def test_a_step_that_sleeps_takes_its_sleep_and_the_bytes_over_the_link(two, tmp_path):
    record = study(two, "lab11", tmp_path, "--study", "sleep", "--bandwidths", "100mbit", "--fixed-ms", "10",
                   "--image-ms", "1")
    weak, strong = record["tables"]["sleep"]
    assert [weak["compute_seconds"], strong["compute_seconds"]] == pytest.approx([0.042, 0.026])
    wire = 8 * record["metrics"]["gradient_bytes"] / 1e8
    assert all(row["step_seconds"] > 0.95 * wire + row["compute_seconds"] for row in (weak, strong))


def test_a_sweep_sets_the_links_of_each_run_which_no_other_run_may_set_meanwhile(two, tmp_path):
    words = ["sweep", "lab13", "--preset", "cluster", "--repeats", "1", "--rounds", "1", "--results", tmp_path]
    before = two.labs("status").stdout
    with FileLock(two.folder / cluster_state.CHANGES):
        assert "another run sets the links of this cluster" in two.labs(*words, code=1).stderr
    assert "2 of 2 runs done" in two.labs(*words, seconds=280).stdout
    runs = records.read_all("lab13_elsewhere", tmp_path)
    assert {run["machine"]["link"] for run in runs} == {"100mbit", "1gbit"}
    assert two.labs("status").stdout == before
