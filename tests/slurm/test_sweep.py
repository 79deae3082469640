"""A sweep as a Slurm array, and the report that waits for it."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests.slurm.client import Job

pytestmark = pytest.mark.slurm
SWEEP = [sys.executable, "-m", "labs", "sweep", "lab04", "--only", "weak", "--repeats", "1", "--batch-size", "16",
         "--images", "64", "--epochs", "2", "--no-ledger"]


def test_an_array_runs_the_cells_and_the_report_comes_after(slurm, tmp_path):
    output = slurm.run(*SWEEP, "--results", tmp_path, "--sbatch", SBATCH_OUTPUT=f"{tmp_path}/%x-%a.out")
    array, report = re.fullmatch(r"2 runs of lab04_speedup are job (\d+), the report after them is job (\d+); .*\n",
                                 output).groups()
    last = Job(slurm, report, tmp_path / "report-4294967294.out")
    assert last.wait(240) == "COMPLETED", [path.read_text() for path in tmp_path.glob("*.out")]
    records = [json.loads(path.read_text()) for path in tmp_path.glob("lab04_speedup/*/record.json")]
    assert sorted(record["layout"]["size"] for record in records) == [1, 2]
    assert slurm.run("scontrol", "show", "job", array).count("JobState=COMPLETED") == 2
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_a_refusal_by_slurm_is_reported_in_one_line(slurm):
    output = slurm.run(*SWEEP, "--sbatch", check=False, SBATCH_PARTITION="nowhere")
    assert re.fullmatch(r"labs: error: sbatch refused: .*nvalid partition.*\n", output)
