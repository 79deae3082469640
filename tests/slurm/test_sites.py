"""The examples of sites, and both launchers, on a real cluster that has the partitions they name."""

from __future__ import annotations

import json
import re
import shlex
import sys

import pytest

from tests.slurm.client import ROOT

pytestmark = pytest.mark.slurm
SITES = sorted((ROOT / "jobs/sites").glob("*.sh"))
PARTITIONS = {file: re.search(r"SBATCH_PARTITION=(\w+)", file.read_text())[1] for file in SITES}
"""The partition that each site names: a fork has other sites."""
BY_SRUN = [file for file in SITES if "\nLAUNCHER=srun" in file.read_text()]
# What `module` does is the site's; here it says that it was called.
MODULE = {"BASH_FUNC_module%%": "() { echo module \"$@\"; }"}


@pytest.fixture(scope="module")
def site(slurm):
    """The test cluster with the partitions of the examples."""
    for name in set(PARTITIONS.values()):
        slurm.run("scontrol", "create", f"partitionname={name}", "nodes=ALL", "maxtime=60")
    yield slurm
    for name in set(PARTITIONS.values()):
        slurm.run("scontrol", "delete", f"partitionname={name}")


@pytest.mark.parametrize("file", SITES, ids=lambda file: file.stem)
def test_the_commands_in_the_comments_work(site, file):
    commands = re.findall(r"^#   ((?:source|labs|sbatch) .*?)(?: +#.*)?$", file.read_text(), re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["source", "labs", "sbatch"]
    source, check, submit = commands
    check = check.replace("labs", f"{shlex.quote(sys.executable)} -m labs", 1)
    submit = submit.replace("sbatch", "sbatch --test-only")
    printed = site.run("bash", "-c", f"{source} && {check} && {submit}")
    assert f" in partition {PARTITIONS[file]}\nsubmit it: " in printed
    assert f"in partition {PARTITIONS[file]}" in printed.splitlines()[-1]


@pytest.mark.parametrize("file", BY_SRUN, ids=lambda file: file.stem)
def test_a_job_takes_its_site_up(site, clone, tmp_path, file):
    example = clone / "jobs/sites" / file.name
    example.write_text(example.read_text().replace("=pmix", "=none"))  # This cluster's srun has no pmix that works.
    out = shlex.quote(str(tmp_path / "out"))
    site.run("bash", "-c", f"source jobs/sites/{file.name} && "
             f"sbatch --wait --output={out} -n1 jobs/lab10_caltech.sh --epochs 3", cwd=clone, **MODULE)
    *modules, called = (tmp_path / "out").read_text().splitlines()
    assert modules == re.findall(r"^ +(module .*)", file.read_text(), re.MULTILINE)
    assert json.loads(called)["words"][:2] == ["-m", "labs.lab10_caltech"], "the site's launcher is srun"


def test_workers_that_srun_gave_no_mpi_stop_and_say_so(site, tmp_path):
    """Not simulated: this cluster's srun and Open MPI do not work together. Each worker would train alone, and save."""
    job = site.submit("-N2", "jobs/lab10_caltech.sh", "--epochs", "1", "--results", tmp_path, "--name", "alone",
                      output=tmp_path / "out", LABS_LAUNCHER="srun")
    assert (job.wait(), job.facts()["ExitCode"]) == ("FAILED", "1:0"), job.text()
    errors = [line for line in job.text().splitlines() if line.startswith("labs: error: ")]
    assert len(errors) == 2
    assert all("srun started 2 tasks that MPI did not join, each would train alone" in line for line in errors)
    assert not (tmp_path / "lab10_caltech").exists()
