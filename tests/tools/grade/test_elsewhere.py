"""Gradescope's scripts, run as Gradescope runs them, with the packages that it would install."""

import json
import os
import shutil
import subprocess
import sys

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
    shutil.copytree(ROOT / "setup", source / "setup")
    env = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    env |= {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AUTOGRADER": str(tmp_path), "PYTHON": sys.executable}

    def run(script: str) -> None:
        subprocess.run(["bash", source / f"grading/gradescope/{script}"], cwd=tmp_path, env=env, check=True)

    def grade() -> tuple[float, list[str], str]:
        """Return the points, the exercises that failed, and what Gradescope shows."""
        run("run_autograder")
        results = json.loads((tmp_path / "results/results.json").read_text())
        failed = [test["name"] for test in results.get("tests", ()) if test.get("status") == "failed"]
        return results["score"], failed, results["output"]

    run("setup.sh")
    shutil.unpack_archive(packed.write(tmp_path, "s1"), submission)
    assert grade()[:2] == (15, [])
    shutil.rmtree(submission)
    submission.mkdir()
    path = packed.write(submission, "s2", cell=WRONG)
    assert grade()[:2] == (12, ["lab04.excess"])
    path.write_bytes(b"no zip")
    assert grade()[0] == 0
    assert "zip" in grade()[2]
