"""Gradescope's scripts, run as Gradescope runs them, with the packages that it would install."""

import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from labs.run.paths import ROOT
from tests.tools.grade import packed

WRONG = "def excess(one, many, n):\n    return {e: many[e] - one[e] for e in one}"


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(900)
def test_gradescope(tmp_path):
    """The archive, the image and three submissions: one that Gradescope unpacked, one that it did not, and no zip."""
    source, submission = tmp_path / "source", tmp_path / "submission"
    for name in ("labs", "grading"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    (source / "setup").mkdir()
    shutil.copy(ROOT / "setup/constraints.txt", source / "setup")
    path, other = packed.write(tmp_path, "s1"), packed.write(tmp_path, "s2", cell=WRONG)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(submission)

    def run(script: str) -> dict:
        """Run a script of Gradescope, and return the results."""
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AUTOGRADER": str(tmp_path), "PYTHON": sys.executable}
        env |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        subprocess.run(["bash", source / f"grading/gradescope/{script}"], cwd=tmp_path, env=env, check=True)
        results = tmp_path / "results/results.json"
        return json.loads(results.read_text()) if results.exists() else {}

    run("setup.sh")
    results = run("run_autograder")
    assert (results["score"], sum(test["max_score"] for test in results["tests"])) == (15, 15)
    shutil.rmtree(submission)
    submission.mkdir()
    shutil.copy(other, submission)
    results = run("run_autograder")
    assert results["score"] == 12
    assert [test["name"] for test in results["tests"] if test["status"] == "failed"] == ["lab04.excess"]
    (submission / other.name).write_bytes(b"no zip")
    results = run("run_autograder")
    assert results["score"] == 0
    assert "zip" in results["output"]
