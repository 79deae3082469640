"""`make lab`: a lab that passes the tests of labs at once, or nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labs.datasets.synthetic import make_synthetic
from labs.run.paths import ROOT
from tests.tree import copied

NAME = "lab77_made_by_a_test"


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the clone, as a commit has it, with the dataset that the first run of a clone writes."""
    tree = copied(tmp_path_factory.mktemp("clone") / "tree")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABS_DATA", str(tree / "data"))
        make_synthetic("mnist")
    return tree


def start(tree: Path, *words: str) -> subprocess.Popen:
    env = {name: value for name, value in os.environ.items() if not name.startswith("LABS_")}
    return subprocess.Popen([sys.executable, "-m", *words], cwd=tree, env=env | {"PYTHONPATH": str(tree)}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


def run(tree: Path, *words: str) -> tuple[int, str]:
    process = start(tree, *words)
    output, _ = process.communicate(timeout=280)
    return process.returncode, output


def contents(tree: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in tree.rglob("*")
            if path.is_file() and not {"__pycache__", ".pytest_cache"} & set(path.parts)}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "reason"), [
    ("lab13_../x", "cannot be the name of a lab"), ("lab04_other", "there is already a lab04_speedup"),
])
def test_what_cannot_be_made_is_refused_in_one_line_and_nothing_is_left(tree, name, reason):
    before = contents(tree)
    code, output = run(tree, "setup.scaffold.make_lab", name)
    assert contents(tree) == before
    assert code == 1
    assert output.startswith("labs: error: ")
    assert reason in output
    assert output.count("\n") == 1


@pytest.mark.notebooks
@pytest.mark.workers
def test_ctrl_c_leaves_nothing(tree):
    before = contents(tree)
    process = start(tree, "setup.scaffold.make_lab", NAME)
    runs = tree / "results" / NAME
    while not runs.exists():  # Until its notebook trains.
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert output.endswith("labs: interrupted; nothing is left of the new lab\n")
    assert process.returncode == 1
    assert contents(tree) == before


@pytest.mark.notebooks
@pytest.mark.workers
def test_a_notebook_that_fails_leaves_nothing(tree):
    template = tree / "setup/scaffold/notebooks/lab00_template.ipynb"
    kept = template.read_text()
    template.write_text(kept.replace("import dataclasses", "raise OSError"))
    before = contents(tree)
    code, output = run(tree, "setup.scaffold.make_lab", NAME)
    assert contents(tree) == before
    template.write_text(kept)
    assert code == 1
    assert f"\nlabs: error: a cell of notebooks/{NAME}.ipynb failed, as shown above" in output


@pytest.mark.notebooks
@pytest.mark.workers
@pytest.mark.timeout(600)  # A minute on two idle cores.
def test_a_new_lab_passes_the_tests_of_labs(tree):
    code, output = run(tree, "setup.scaffold.make_lab", NAME)
    assert code == 0, output
    code, output = run(tree, "pytest", "-q", f"tests/labs/test_{NAME[:5]}.py")
    assert code == 0, output
    of_labs = ["tests/test_house.py", "tests/course/exercises", "tests/docs/test_pages.py",
               "tests/labs/test_own_data.py"]
    code, output = run(tree, "pytest", "-q", *of_labs, "-k", f"{NAME} or {NAME[:5]} or same_times")
    assert code == 0, output
    assert f"{ROOT}/" not in (tree / f"notebooks/{NAME}.ipynb").read_text()
    code, output = run(tree, "ruff", "check", ".")
    assert code == 0, output
    code, output = run(tree, "importlinter.cli", "--no-logo")
    assert code == 0, output
