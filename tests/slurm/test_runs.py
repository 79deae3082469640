"""Labs on a real Slurm cluster, from `sbatch` to their records: on two nodes, past the time limit, and as an array."""

import json
import re
import sys

import pytest

from tests.slurm.client import Job
from tests.tools.cluster.client import until

pytestmark = pytest.mark.slurm
JOB = "jobs/lab10_caltech.sh"
SMALL = ("--image-size", "16", "--batch-size", "64")


@pytest.mark.everyday
def test_it_trains_on_two_nodes(slurm, tmp_path):
    words = ["--epochs", "1", "--image-size", "32", "--results", tmp_path / "my results", "--name", "two"]
    # --export=NONE is some sites' default: env.sh must reach the second node nevertheless.
    job = slurm.submit("-N2", "--export=NONE", JOB, *words, output=tmp_path / "out")
    assert job.wait(180) == "COMPLETED", job.text()
    layout = json.loads((tmp_path / "my results/lab10_caltech/two/record.json").read_text())["layout"]
    assert (layout["size"], layout["local_size"], layout["hosts"]) == (2, 1, ["node1", "node2"])


def test_nothing_trains_on_after_scancel(slurm, tmp_path):
    idle = slurm.cluster.processes()
    job = slurm.submit("-N2", JOB, "--epochs", "9999", *SMALL, "--results", tmp_path, "--name", "long",
                       output=tmp_path / "out")
    until(lambda: list(tmp_path.glob("lab10_caltech/long/checkpoints/*.npz")), 180, job.text)
    slurm.run("scancel", job.number)
    assert job.wait() == "CANCELLED", job.text()
    slurm.cluster.wait_until_idle(idle, 30)


def test_workers_that_srun_gave_no_mpi_stop_and_say_so(slurm, tmp_path):
    """Not simulated: this cluster's srun and Open MPI do not work together. Each worker would train alone, and save."""
    job = slurm.submit("-N2", JOB, "--epochs", "1", "--results", tmp_path, "--name", "alone", output=tmp_path / "out",
                       LABS_LAUNCHER="srun")
    assert (job.wait(), job.facts()["ExitCode"]) == ("FAILED", "1:0"), job.text()
    errors = [line for line in job.text().splitlines() if line.startswith("labs: error: ")]
    assert len(errors) == 2
    assert all("srun started 2 tasks that MPI did not join, each would train alone" in line for line in errors)
    assert not (tmp_path / "lab10_caltech").exists()


def test_a_run_longer_than_its_limit_goes_on_by_itself(slurm, tmp_path):
    """The shortest limit is a minute, and the signal may come half a minute early."""
    idle = slurm.cluster.processes()
    job = slurm.submit("--time=1", "--signal=B:USR1@5", JOB, "--epochs", 9999, *SMALL, "--results", tmp_path,
                       output=tmp_path / "out")
    # Slurm lets it pause in the queue for two minutes, so that its last processes have ended.
    until(lambda: job.facts()["Reason"] == "BeginTime" and slurm.cluster.processes() <= idle, 150, job.text)
    slurm.run("scontrol", "update", f"jobid={job.number}", "starttime=now+10")
    until(lambda: re.search(r"\nresumed after epoch (.|\n)*\nepoch (.|\n)*\nepoch ", job.text()), 120, job.text)
    slurm.run("scancel", job.number)
    job.wait()
    assert job.text().count("goes back into the queue") == int(job.facts()["Restarts"]) == 1
    trained = [int(epoch) for epoch in re.findall(r"^epoch (\d+)/", job.text(), re.MULTILINE)]
    assert trained == list(range(1, len(trained) + 1)), "an epoch was trained twice"
    (step, epoch), *_ = re.findall(r"^stopped and saved after (?:step (\d+) of )?epoch (\d+)", job.text(), re.MULTILINE)
    (last, begun), = re.findall(r"^resumed after epoch (\d+)(?:, step (\d+))?", job.text(), re.MULTILINE)
    assert (int(last), begun) == (int(epoch) - bool(step), step), "a step was taken twice"


def test_an_array_runs_the_cells_of_a_sweep_over_nodes_and_the_report_comes_after(slurm, tmp_path):
    sweep = [sys.executable, "-m", "labs", "sweep", "lab11", "--preset", "paper", "--only", "strong", "--data",
             "embedded", "--images", "256", "--workers", "1,2", "--repeats", "1", "--results", tmp_path, "--sbatch"]
    refused = slurm.process(*sweep, SBATCH_PARTITION="nowhere").stderr
    assert re.fullmatch(r"labs: error: sbatch refused: .*nvalid partition.*\n", refused)
    output = slurm.run(*sweep, SBATCH_OUTPUT=f"{tmp_path}/%x-%A.out")
    (report,) = re.findall(r"^2 runs of lab11_multinode are jobs \d+, \d+, the report after them is job (\d+)", output)
    last = Job(slurm, report, tmp_path / f"report-{report}.out")
    assert last.wait(240) == "COMPLETED", [path.read_text() for path in tmp_path.glob("*.out")]
    records = [json.loads(path.read_text()) for path in tmp_path.glob("lab11_multinode/*/record.json")]
    assert sorted(record["layout"]["nodes"] for record in records) == [1, 2]
    assert (tmp_path / "report.html").stat().st_size > 1000
