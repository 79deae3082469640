"""The job files, on a real Slurm cluster of two nodes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from labs.tools.cluster.slurm import TASK_CPUS
from tests.slurm.client import ROOT
from tests.slurm.conftest import running
from tests.tools.cluster.client import until

pytestmark = pytest.mark.slurm
JOBS = sorted((ROOT / "jobs").glob("lab*.sh"))


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.stem)
def test_a_job_file_has_what_every_job_file_has(slurm, job):
    text = job.read_text()
    assert f"#SBATCH --cpus-per-task={TASK_CPUS}\n" in text, "a node of `labs cluster` has as many for Slurm"
    assert text.splitlines()[-1] == f'launch {job.stem} "$@"'
    assert f"#SBATCH --job-name={job.stem}\n" in text
    assert not re.search(r"^#SBATCH.*(partition|account|-p |-A |gpu|gres)", text, re.MULTILINE), "the site has them"


@pytest.mark.parametrize("command", [line.strip("# \n") for job in [*JOBS, ROOT / "jobs/example.sh"]
                                     for line in job.read_text().splitlines() if line.startswith("#   sbatch")])
def test_commands_in_the_comments_are_accepted(slurm, command):
    fitting = re.sub(r"=[47] ", "=2 ", command).replace("-N 8", "-N 2")  # The test cluster: 2 nodes, 2 GPUs, 4 CPUs.
    assert "to start at" in slurm.run("sbatch", "--test-only", *shlex.split(fitting)[1:])


@pytest.mark.parametrize(("launcher", "first"), [("mpirun", ["run", "lab10_caltech"]),
                                                ("srun", ["-m", "labs.lab10_caltech"])])
def test_words_survive_and_a_failing_lab_is_a_failed_job(slurm, clone, tmp_path, launcher, first):
    words = ["--data", '/tmp/a  b/it\'s "so" $HOME *', "--name", "", "--input", "--", "\\"]
    job = slurm.submit("jobs/lab10_caltech.sh", *words, cwd=clone, output=tmp_path / "out", LABS_LAUNCHER=launcher,
                       STUB_EXIT="3")
    assert (job.wait(), job.facts()["ExitCode"]) == ("FAILED", "3:0"), job.text()
    assert json.loads(job.text().splitlines()[0]) == {"words": [*first, *words], "folder": str(clone)}


@pytest.mark.parametrize(("name", "submit", "here"), [
    ("lab10_caltech", "sbatch jobs/lab10_caltech.sh", "labs run lab10_caltech"),
    ("sweep", "labs sweep LAB --sbatch", "labs sweep LAB"), ("report", "sbatch jobs/report.sh", "labs report")])
def test_a_job_file_does_not_run_without_slurm(clone, name, submit, here):
    done = subprocess.run(["bash", f"jobs/{name}.sh", "--epochs", "1"], cwd=clone, capture_output=True, text=True,
                          env={"PATH": os.environ["PATH"]}, timeout=60, check=False)
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert done.stderr == f"labs: error: not in a Slurm job; `{submit}`, or here `{here}`\n"


def test_a_site_names_another_environment(clone, tmp_path):
    """A real venv, in which nothing but the stub of `labs` is installed. No tracked file changes."""
    venv = tmp_path / "envs/my own"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    shutil.copy2(clone / ".venv/bin/labs", venv / "bin/labs")
    shutil.rmtree(clone / ".venv")
    site = clone / "jobs/sites/ours.sh"
    where = 'source jobs/env.sh && command -v labs python && echo "$VIRTUAL_ENV"'
    for named, printed in ((venv, f"{venv}/bin/labs\n{venv}/bin/python\n{venv}\n"), (tmp_path / "envs/absent", "")):
        site.write_text(f"LABS_ENV={shlex.quote(str(named))}\n")
        done = subprocess.run(["bash", "-c", where], cwd=clone, capture_output=True, text=True, check=False,
                              env={"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", "LABS_SITE": "ours"})
        assert done.stdout == printed, done.stderr
        assert bool(done.returncode) != bool(printed)
    assert done.stderr.splitlines()[-1] == (f"labs: error: LABS_ENV is '{named}'; choose a venv or a conda environment "
                                            "in which `labs` is installed")


@pytest.mark.parametrize(("file", "words", "right"), [
    ("lab10_caltech.sh", ["--epochs", "3", "-N2", "-t", "5", "--mem=4G", "--gres", "gpu:1", "--exclusive", "--augment"],
     "sbatch -N2 -t 5 --mem=4G --gres gpu:1 --exclusive jobs/lab10_caltech.sh --epochs 3 --augment"),
    ("example.sh", ["--ntasks=2", "my train.py", "--epochs", "3"],
     r"sbatch --ntasks=2 jobs/example.sh my\ train.py --epochs 3")])
def test_options_of_sbatch_after_the_file_are_refused_with_the_cure(slurm, clone, tmp_path, file, words, right):
    job = slurm.submit(f"jobs/{file}", *words, cwd=clone, output=tmp_path / "out")
    assert (job.wait(), job.text()) == ("FAILED", f"labs: error: sbatch's options go before the file: `{right}`\n")


def test_the_tasks_of_an_array_are_separate(slurm, clone, tmp_path):
    """Each has its own run, which a job name with a slash does not break; one that goes back leaves the other alone."""
    (clone / ".venv/bin/labs").write_text("#!/bin/bash\ntrap 'exit 1' USR1\necho \"$@\"\nwhile :; do sleep 0.1; done\n")
    logs = [tmp_path / f"out-{task}" for task in range(2)]
    array = slurm.submit("--array=0-1", "--job-name=a/b", "-wnode1", "-c1", "jobs/lab10_caltech.sh", cwd=clone,
                         output=tmp_path / "out-%a")
    until(lambda: all(log.exists() and log.read_text() for log in logs))
    try:
        names = [re.fullmatch(r"run lab10_caltech --name (lab10_caltech-(\d+))\n", log.read_text()) for log in logs]
        assert len({name[1] for name in names}) == 2
        # Slurm gives one task the number of its array: as a job's number it means all tasks.
        first = [name[2] for name in names].index(array.number)
        slurm.run("scancel", "--batch", "--signal=USR1", f"{array.number}_{first}")
        until(lambda: "goes back into the queue" in logs[first].read_text())
        until(lambda: "Restarts=1" in slurm.run("scontrol", "show", "job", f"{array.number}_{first}"))
        assert "Restarts=0" in slurm.run("scontrol", "show", "job", f"{array.number}_{1 - first}")
    finally:
        slurm.run("scancel", array.number)


def test_a_signal_when_the_run_is_done_does_not_send_its_job_back(slurm, clone, tmp_path):
    done_when_asked = "#!/bin/bash\ntrap 'exit 0' USR1\necho started\nwhile :; do sleep 0.1; done\n"
    (clone / ".venv/bin/labs").write_text(done_when_asked)
    job = slurm.submit("jobs/lab10_caltech.sh", cwd=clone, output=tmp_path / "out")
    until(lambda: "started" in job.text())
    slurm.run("scancel", "--batch", "--signal=USR1", job.number)
    assert (job.wait(), job.text()) == ("COMPLETED", "started\n")


def test_a_mistake_is_one_clear_line(slurm, clone, tmp_path):
    (tmp_path / "bare").mkdir()
    shutil.copytree(clone / "jobs", tmp_path / "bare/jobs")
    for folder, variables, line in (
            ("my clone/jobs", {}, "no {}/jobs/env.sh; type `sbatch jobs/lab10_caltech.sh` in the clone's top folder"),
            ("bare", {}, "no {}/.venv/bin/labs; run `make env` in {} first"),
            ("my clone", {"LABS_LAUNCHER": "prun"}, "LAUNCHER is 'prun'; choose mpirun or srun")):
        where, out = tmp_path / folder, tmp_path / f"out-{len(line)}"
        job = slurm.submit(clone / "jobs/lab10_caltech.sh", cwd=where, output=out, **variables)
        assert (job.wait(), job.facts()["ExitCode"]) == ("FAILED", "1:0")
        assert job.text() == "labs: error: " + line.format(where, where) + "\n"
    job = slurm.submit("jobs/example.sh", cwd=clone, output=tmp_path / "out")
    assert (job.wait(), job.text()) == ("FAILED", "labs: error: no file ''; type `sbatch jobs/example.sh FILE`\n")


@pytest.mark.parametrize(("args", "granted"), [
    (["-N2", "-n3", "-c2"], "ntasks_per_node=(2, 1), cpus=6"),
    (["--exclusive", "-n1", "--gpus=2"], "ntasks_per_node=(1,), cpus=4"),
], ids=["uneven", "whole node"])
def test_the_launcher_sees_what_slurm_granted(slurm, tmp_path, args, granted):
    code = "from labs.run import resources; print(resources.allocation())"
    command = f"source jobs/env.sh && python -c {shlex.quote(code)}"
    job = slurm.submit(*args, f"--wrap=bash -c {shlex.quote(command)}", output=tmp_path / "out")
    assert job.wait() == "COMPLETED", job.text()
    assert f"Allocation(job_id='{job.number}', {granted})" in job.text()


@pytest.mark.parametrize("nodes", [1, 2])
def test_an_example_trains_as_a_laptop_submits_it(tmp_path_factory, tmp_path, nodes):
    """On nodes with the fewest CPUs that `labs cluster up --slurm` gives; it writes where sbatch was typed."""
    for name in ("jobs", "examples", ".venv"):
        (tmp_path / name).symlink_to(ROOT / name)
    with running(tmp_path_factory, nodes=nodes, cpus=TASK_CPUS) as small:
        job = small.submit(f"-N{nodes}", "jobs/example.sh", "examples/lab02_horovod.py", "--epochs", "2", cwd=tmp_path,
                           output=tmp_path / "out")
        assert job.wait(180) == "COMPLETED", job.text()
    assert f"\n{2 * nodes} workers, {[23, 12][nodes - 1]} steps per epoch, " in job.text()
    assert (tmp_path / "lab02_horovod.keras").is_file()
