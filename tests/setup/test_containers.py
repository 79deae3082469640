"""The recipes of setup/containers/: the steps that they share, run in a folder, without Docker or Apptainer."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.setup.clone import ROOT, VERSION


def test_a_recipe_runs_every_step():
    for recipe in ("Dockerfile", "labs.def"):
        steps = re.findall(r"setup/containers/steps\.sh (.+)", (ROOT / "setup/containers" / recipe).read_text())
        assert [step.split("&&")[0].strip() for step in steps] == [
            "packages", "environment /opt/labs/env", "try /opt/labs/env"]


@pytest.mark.workers
@pytest.mark.timeout(900)
def test_the_steps_make_an_image_that_trains(tmp_path):
    """The packages and Horovod's wheel come from this user's caches; then both folders are made read-only."""
    kit, environment = tmp_path / "kit", tmp_path / "env"
    kit.mkdir()
    # What is committed or will be, as Docker copies it: no environment, cache, result or download.
    subprocess.run("git ls-files -z -co --exclude-standard | xargs -0 ls -d 2>/dev/null"
                   f" | tar cf - -T - | tar xf - -C {kit}", shell=True, cwd=ROOT, check=True)
    foreign = ("LABS_", "PYTHONPATH", "MAKE", "VENV", "MPI", "GPU")
    mine = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    mine |= {"PYTHON": f"{sys.base_prefix}/bin/python{VERSION}"}
    steps = ["bash", str(kit / "setup/containers" / "steps.sh")]
    made = subprocess.run([*steps, "environment", "env"], cwd=tmp_path, env=mine, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "weights equal" in made.stdout
    assert list(environment.glob(f"lib/python{VERSION}/site-packages/pandas/__pycache__/*.pyc"))

    mine |= {"LABS_RESULTS": str(tmp_path / "results"), "LABS_DATA": str(tmp_path / "data"), "HOME": str(tmp_path)}
    mount = "".join(f"mount --bind {path} {path}; mount -o remount,bind,ro {path}; " for path in (kit, environment))
    command = f"{mount} {shlex.join([*steps, 'try', str(environment)])}"
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this machine has no user namespaces")
    tried = subprocess.run(["unshare", "-rm", "bash", "-euc", command], env=mine, capture_output=True, text=True)
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert len(list((tmp_path / "results").glob("lab02_horovod/*/record.json"))) == 1
