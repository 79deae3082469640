"""The studies that set the links of a cluster: lab 5's all-reduces and steps, lab 11's sleeps, and sweeps."""

from __future__ import annotations

import subprocess

import pytest
from filelock import FileLock

from labs.pages import lab05
from labs.results import records
from labs.run import cluster_state
from labs.run.paths import ROOT
from tests.tools.cluster.client import LABS

pytestmark = [pytest.mark.workers, pytest.mark.slow]
SLOW = "20mbit"


@pytest.mark.alone  # Other tests take the processor time that the messages need.
def test_an_all_reduce_uses_the_whole_link_and_sends_a_rings_bytes(two, tmp_path):
    """A slow link: what the processor needs does not show. With Open MPI's own limits the share is 0.7."""
    before = two.labs("status").stdout
    two.labs("run", "lab05", "--study", "links", "--bandwidths", SLOW, "--largest-mb", "1", "--seconds", "0.1",
             "--results", tmp_path, "--name", "it")
    record = records.read(tmp_path / "lab05_allreduce/it")
    (row,) = lab05.link_shares([record]).to_dict("records")
    assert 0.77 < row["share"] < 1.05
    assert row["bytes_over_ring"] == pytest.approx(1, abs=0.1)
    assert record["layout"]["nodes"] == 2
    assert two.labs("status").stdout == before, "the links have their bandwidth back"


@pytest.mark.timeout(900)  # Two minutes on an idle machine.
def test_steps_are_predicted_before_they_are_measured(two, tmp_path):
    output = two.labs("run", "lab05", "--study", "bandwidth", "--bandwidths", "1gbit", "--seconds", "2", "--name", "it",
                      "--results", tmp_path, seconds=840).stdout
    record = records.read(tmp_path / "lab05_allreduce/it")
    cells = lab05.rows_of([record], "cells")
    assert len(cells) == record["metrics"]["prediction_cells"] == 6
    assert (cells["predicted_seconds"] > cells["alone_seconds"]).all()
    assert (cells["ready_seconds"] < cells["computed_seconds"]).all()
    assert (cells["computed_seconds"] < cells["alone_seconds"]).all()
    assert output.index("ms predicted") < output.index("ms measured")


def test_a_step_that_sleeps_takes_its_sleep_and_the_bytes_over_the_link(two, tmp_path):
    two.labs("run", "lab11", "--study", "sleep", "--bandwidths", "100mbit", "--fixed-ms", "10", "--image-ms", "1",
             "--name", "it", "--results", tmp_path, seconds=240)
    record = records.read(tmp_path / "lab11_multinode/it")
    weak, strong = record["tables"]["sleep"]
    assert [weak["compute_seconds"], strong["compute_seconds"]] == pytest.approx([0.042, 0.026])
    wire = 8 * record["metrics"]["gradient_bytes"] / 1e8
    for row in (weak, strong):
        assert row["step_seconds"] > 0.95 * wire + row["compute_seconds"]


def test_a_sweep_sets_the_links_of_each_run_and_records_them(two, tmp_path):
    words = ["lab13", "--preset", "cluster", "--repeats", "1", "--rounds", "1", "--results", tmp_path]
    before = two.labs("status").stdout
    done = two.labs("sweep", *words, seconds=280)
    runs = records.read_all("lab13_elsewhere", tmp_path)
    assert {run["machine"]["link"] for run in runs} == {"100mbit", "1gbit"}
    assert "2 of 2 runs done" in done.stdout
    assert two.labs("status").stdout == before
    assert "2 of 2 runs done" in two.labs("sweep", *words).stdout, "nothing is run again"


def test_two_runs_never_set_the_same_links_and_no_wrong_value_is_set(two, tmp_path):
    before = two.labs("status").stdout
    study = ["run", "lab05", "--study", "links", "--results", tmp_path]
    with FileLock(two.folder / cluster_state.CHANGES):
        done = two.labs(*study, code=1)
    assert "another run sets the links of this cluster; wait until it ends" in done.stderr
    done = two.labs(*study, "--bandwidths", "100mbit,fast", code=1)
    assert "'fast' is not a bandwidth" in done.stderr
    assert "100mbit;" not in done.stdout
    assert two.labs("status").stdout == before
    done = subprocess.run([*LABS, *map(str, study), "--workers", "2"], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    assert "this study needs `labs cluster`: run `labs cluster up --nodes 2`" in done.stderr.strip().splitlines()[-1]
