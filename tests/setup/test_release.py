"""`make release`: what the students' archive leaves out, and that the rest stands without it."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.setup.clone import ROOT

KNOWN = {("labs/course/exercises/lab10_caltech.py", "subset"), ("labs/course/survival.py", "waste")}
"""Answers that students get: a grader computes the first; the second is a formula of the kit, which lab 12 explains."""
pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a release is made in a clone")


def made(clone: Path) -> subprocess.CompletedProcess:
    program = [sys.executable, "-m", "setup.release"]
    return subprocess.run(program, cwd=clone, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A clone of this commit, and of the changes that are not committed yet."""
    clone = tmp_path_factory.mktemp("clone") / "labs"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, subprocess.check_output(listed, cwd=ROOT, text=True).split("\0")):
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
        else:
            (clone / name).unlink(missing_ok=True)
    who = ["-c", "user.name=labs", "-c", "user.email=labs@localhost"]
    subprocess.run(["git", "add", "-A"], cwd=clone, check=True)
    subprocess.run(["git", *who, "commit", "-qm", "As it is", "--allow-empty"], cwd=clone, check=True)
    return clone


@pytest.fixture(scope="module")
def releases(clone, tmp_path_factory) -> dict[str, Path]:
    """Both archives, unpacked."""
    done = made(clone)
    assert done.returncode == 0, done.stderr
    folders = {}
    for readers in ("students", "instructors"):
        (archive,) = clone.glob(f"dist/labs-*-{readers}.tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(where := tmp_path_factory.mktemp(readers), filter="data")
        (folders[readers],) = where.iterdir()
    return folders


def lines(text: str) -> str:
    return "\n".join(filter(None, map(str.strip, text.splitlines())))


def solutions() -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the functions in solutions/, without signature and docstring."""
    for path in sorted((ROOT / "solutions").glob("lab*.py")):
        text = path.read_text().splitlines()
        for node in ast.parse("\n".join(text)).body:
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                yield node.name, lines("\n".join(text[body[0].lineno - 1:body[-1].end_lineno]))


def test_students_get_no_solution_and_no_rubric(releases):
    answers, rubric = list(solutions()), [
        line for line in lines((ROOT / "solutions/rubric.md").read_text()).splitlines() if len(line) > 60]
    whole = {hashlib.sha256(path.read_bytes()).digest() for path in (ROOT / "solutions").rglob("*")
             if path.is_file() and path.stat().st_size}
    assert len(answers) > 70
    assert len(rubric) > 200
    found = set()
    for path in filter(Path.is_file, releases["students"].rglob("*")):
        assert hashlib.sha256(path.read_bytes()).digest() not in whole, path
        text = path.read_text(errors="replace")
        if path.suffix == ".ipynb":
            text = re.sub(r'^ *"|(\\n)?",?$', "", text, flags=re.MULTILINE).replace(r"\"", '"')
        text, name = lines(text), str(path.relative_to(releases["students"]))
        found |= {(name, function) for function, body in answers if body in text}
        assert not [line for line in rubric if line in text], name
    assert found == KNOWN
    assert not (releases["students"] / ".git").exists()


def test_instructors_get_every_file_of_the_commit_and_the_same_bytes_again(clone, releases):
    listed = subprocess.check_output(["git", "ls-files"], cwd=clone, text=True).splitlines()
    folder = releases["instructors"]
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == {*listed, "RELEASE"}
    before = {path: path.read_bytes() for path in clone.glob("dist/*")}
    assert made(clone).returncode == 0
    assert {path: path.read_bytes() for path in clone.glob("dist/*")} == before


def test_a_change_that_is_not_committed_is_refused(clone):
    (clone / "mine.txt").touch()
    done = made(clone)
    (clone / "mine.txt").unlink()
    assert done.returncode == 1
    assert re.fullmatch(r"labs: error: 1 uncommitted file, such as mine\.txt; .*\n", done.stderr)


def test_records_name_the_release(releases, clone):
    program = "from labs.run import environment; print(environment.commit())"
    said = {folder: subprocess.check_output([sys.executable, "-c", program], cwd=folder, text=True).strip()
            for folder in (*releases.values(), clone)}
    assert said[clone] == subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=clone,
                                                  text=True).strip()
    assert {said[folder] for folder in releases.values()} == {f"release-{releases['students'].name[5:]}"}
    assert said[clone][:8] in said[releases["students"]]


@pytest.mark.slow
def test_the_students_release_builds_the_site(releases):
    """Without the instructors' pages, as `rm -r site/instructor; make site` does."""
    folder = releases["students"]
    assert not (folder / "site/instructor").exists()
    if (ROOT / ".venv-site").exists():
        (folder / ".venv-site").symlink_to(ROOT / ".venv-site")
    done = subprocess.run([sys.executable, "site/build.py"], cwd=folder, capture_output=True, text=True, check=False,
                          env=os.environ | {"PYTHONPATH": str(folder)})
    (folder / ".venv-site").unlink(missing_ok=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "For instructors" not in (folder / "build/site/index.html").read_text()
    shutil.rmtree(folder / "build")


@pytest.mark.slow
def test_the_students_release_passes_what_reads_all_its_files(releases):
    """Style, imports, pages and their links; and every test is found. The tests themselves take ten minutes."""
    for words in (["ruff", "check", "."], ["importlinter.cli", "--no-logo"], ["pytest", "-q", "-n0", "--collect-only"],
                  ["pytest", "-q", "-n0", "tests/docs/test_pages.py", "tests/test_house.py"]):
        done = subprocess.run([sys.executable, "-m", *words], cwd=releases["students"], capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(releases["students"])}, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
