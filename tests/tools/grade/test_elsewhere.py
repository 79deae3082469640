"""Gradescope's scripts, run as Gradescope runs them, with the packages that it would install."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from labs.run.paths import ROOT
from tests.tools.grade import packed

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(900)]
WRONG = "def excess(one, many, n):\n    return {e: many[e] - one[e] for e in one}"


def run(*command, cwd, **variables):
    env = {"PATH": os.environ["PATH"], "HOME": str(cwd), **variables}
    env |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_gradescope(tmp_path):
    """The archive, the image and two submissions: one that Gradescope unpacked, and one that it did not."""
    source = tmp_path / "source"
    for name in ("labs", "grading"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    (source / "setup").mkdir()
    shutil.copy(ROOT / "setup/constraints.txt", source / "setup")
    shutil.copy(source / "grading/gradescope/run_autograder", tmp_path)
    environment = {"AUTOGRADER": str(tmp_path), "PYTHON": sys.executable}
    run("bash", source / "grading/gradescope/setup.sh", cwd=tmp_path, **environment)
    path, other = packed.write(tmp_path, "s1"), packed.write(tmp_path, "s2", cell=WRONG)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "submission")
    run(tmp_path / "run_autograder", cwd=tmp_path, **environment)
    results = json.loads((tmp_path / "results/results.json").read_text())
    assert (results["score"], sum(test["max_score"] for test in results["tests"])) == (15, 15)
    assert {test["status"] for test in results["tests"]} == {"passed"}
    shutil.rmtree(tmp_path / "submission")
    (tmp_path / "submission").mkdir()
    shutil.copy(other, tmp_path / "submission")
    run(tmp_path / "run_autograder", cwd=tmp_path, **environment)
    results = json.loads((tmp_path / "results/results.json").read_text())
    assert results["score"] == 12
    assert [test["name"] for test in results["tests"] if test["status"] == "failed"] == ["lab04.excess"]
    (tmp_path / "submission" / other.name).write_bytes(b"no zip")
    run(tmp_path / "run_autograder", cwd=tmp_path, **environment)
    results = json.loads((tmp_path / "results/results.json").read_text())
    assert results["score"] == 0
    assert "zip" in results["output"]
