"""The job files and the examples of sites, on a real Slurm cluster of two nodes."""

import re
import shlex
import subprocess
import sys

import pytest

from labs.run.paths import ROOT
from labs.tools.cluster.slurm import TASK_CPUS
from tests.slurm.client import running

pytestmark = pytest.mark.slurm
JOBS = sorted((ROOT / "jobs").glob("lab*.sh"))
SITES = sorted((ROOT / "jobs/sites").glob("*.sh"))
PARTITIONS = {file: re.search(r"SBATCH_PARTITION=(\w+)", file.read_text())[1] for file in SITES}
"""The partition that each site names: a fork has other sites."""


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.stem)
def test_a_job_file_starts_its_lab_on_any_site_and_slurm_accepts_the_commands_in_its_comments(slurm, job):
    text = job.read_text()
    assert f"--cpus-per-task={TASK_CPUS} " in text, "a node of `labs cluster` has as many for Slurm"
    assert f"#SBATCH --job-name={job.stem} " in text
    assert text.splitlines()[-1] == f'launch {job.stem} "$@"'
    assert not re.search(r"^#SBATCH.*(partition|account|-p |-A |gpu|gres)", text, re.MULTILINE), "the site has them"
    for command in re.findall(r"^#   (sbatch .*)", text, re.MULTILINE):
        fitting = re.sub(r"=[47] ", "=2 ", command).replace("-N 8", "-N 2")  # 2 nodes, 2 GPUs and 4 CPUs on each.
        assert "to start at" in slurm.run("sbatch", "--test-only", *shlex.split(fitting)[1:])


def test_words_survive_and_a_failing_lab_is_a_failed_job(slurm, clone, tmp_path):
    words = ["--data", '/tmp/a  b/it\'s "so" $HOME *', "--name", "", "--input", "--", "\\"]
    job = slurm.submit("jobs/lab10_caltech.sh", *words, cwd=clone, output=tmp_path / "out", STUB_EXIT="3")
    assert (job.wait(), job.facts()["ExitCode"]) == ("FAILED", "3:0"), job.text()
    assert job.text().splitlines() == [str(clone), "run", "lab10_caltech", *words]


def test_a_mistake_is_one_clear_line(slurm, clone, tmp_path):
    (clone / "empty").mkdir()
    late = "sbatch's options go before the file: `sbatch -N2 ... jobs/{}.sh`"
    for number, (file, words, folder, line) in enumerate([
            ("lab10_caltech", ["--epochs", "3", "-N2"], "", late.format("lab10_caltech")),
            ("example", ["-N2", "train.py", "-b", "4"], "", late.format("example")),
            ("example", [], "", "no file ''; type `sbatch jobs/example.sh FILE`"),
            ("lab10_caltech", [], "empty", f"no jobs/env.sh in {clone}/empty; type sbatch in the clone's top folder")]):
        job = slurm.submit(clone / f"jobs/{file}.sh", *words, cwd=clone / folder, output=tmp_path / f"out{number}")
        assert (job.wait(), job.text()) == ("FAILED", f"labs: error: {line}\n")
    done = subprocess.run(["bash", "jobs/lab10_caltech.sh"], cwd=clone, capture_output=True, text=True, check=False,
                          env={"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stdout) == (1, "")
    assert "not in a Slurm job; `sbatch jobs/lab10_caltech.sh` submits it" in done.stderr


def test_an_example_trains_as_a_laptop_submits_it(tmp_path_factory, tmp_path):
    """On nodes with the fewest CPUs that `labs cluster up --slurm` gives; it writes where sbatch was typed."""
    for name in ("jobs", "examples", ".venv"):
        (tmp_path / name).symlink_to(ROOT / name)
    with running(tmp_path_factory, cpus=TASK_CPUS) as small:
        job = small.submit("-N2", "jobs/example.sh", "examples/lab02_horovod.py", "--epochs", "2", cwd=tmp_path,
                           output=tmp_path / "out")
        assert job.wait(180) == "COMPLETED", job.text()
    assert "\n4 workers, 12 steps per epoch, " in job.text()
    assert (tmp_path / "lab02_horovod.keras").is_file()


@pytest.mark.parametrize("file", SITES, ids=lambda file: file.stem)
def test_the_commands_and_the_settings_of_a_site_work(slurm, clone, tmp_path, file):
    commands = re.findall(r"^#   ((?:source|labs|sbatch) .*?)(?: +#.*)?$", file.read_text(), re.MULTILINE)
    source, check, submit = commands
    check = check.replace("labs", f"{shlex.quote(sys.executable)} -m labs", 1)
    slurm.run("scontrol", "create", f"partitionname={PARTITIONS[file]}", "nodes=ALL", "maxtime=60")
    printed = slurm.run("bash", "-c", f"{source} && {check}")
    assert f" in partition {PARTITIONS[file]}\nsubmit it: " in printed
    example = clone / "jobs/sites" / file.name
    example.write_text(example.read_text().replace("=pmix", "=none"))  # This cluster's srun has no pmix that works.
    # What `module` does is the site's; here it says that it was called.
    submit = submit.replace("sbatch", f"sbatch --wait --output={tmp_path}/out")
    slurm.run("bash", "-c", f"{source} && {submit}", cwd=clone, **{"BASH_FUNC_module%%": "() { echo module \"$@\"; }"})
    slurm.run("scontrol", "delete", f"partitionname={PARTITIONS[file]}")
    modules = re.findall(r"^ +(module .*)", file.read_text(), re.MULTILINE)
    first = ["-m", "labs.lab02_horovod"] if "\nLAUNCHER=srun" in file.read_text() else ["run", "lab02_horovod"]
    printed = (tmp_path / "out").read_text().splitlines()
    assert printed[:len(modules) + 3] == [*modules, str(clone), *first]
