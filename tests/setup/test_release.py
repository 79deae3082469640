"""`make release`: what the students' archive leaves out, and that the rest stands without it."""

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.setup.clone import ROOT

KNOWN = {("labs/pages/at_scale.py", "waste")}
"""Answers that students get: a formula of the kit, which lab 12 explains."""
pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a release is made in a clone")


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
def students(clone, tmp_path_factory) -> Path:
    """The students' archive, unpacked."""
    where = tmp_path_factory.mktemp("students")
    subprocess.run(["make", "release"], cwd=clone, check=True, capture_output=True)
    (archive,) = clone.glob("dist/labs-*-students.tar.gz")
    subprocess.run(["tar", "-xzf", archive, "-C", where, "--strip-components=1"], check=True)
    return where


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


def test_students_get_no_solution_no_rubric_and_no_grading(students):
    answers, rubric = list(solutions()), [
        line for line in lines((ROOT / "solutions/rubric.md").read_text()).splitlines() if len(line) > 60]
    whole = {hashlib.sha256(path.read_bytes()).digest() for path in (ROOT / "solutions").rglob("*")
             if path.is_file() and path.stat().st_size}
    assert len(answers) > 70
    assert len(rubric) > 200
    found = set()
    for path in filter(Path.is_file, students.rglob("*")):
        assert hashlib.sha256(path.read_bytes()).digest() not in whole, path
        text = path.read_text(errors="replace")
        if path.suffix == ".ipynb":
            text = re.sub(r'^ *"|(\\n)?",?$', "", text, flags=re.MULTILINE).replace(r"\"", '"')
        text, name = lines(text), str(path.relative_to(students))
        found |= {(name, function) for function, body in answers if body in text}
        assert not [line for line in rubric if line in text], name
    assert found == KNOWN
    assert not [name for name in (".git", "solutions", "grading", "labs/tools/grade")
                if (students / name).exists()]


def test_the_archive_of_a_commit_names_it_in_records_and_waits_for_a_commit(clone, students):
    commit = subprocess.check_output(["git", "rev-parse", "--short=8", "HEAD"], cwd=clone, text=True)
    program = "from labs.run import environment; print(environment.commit())"
    said = subprocess.check_output([sys.executable, "-c", program], cwd=students, text=True)
    assert said == f"release-{commit}"
    (clone / "Makefile").write_text((clone / "Makefile").read_text() + "# Mine.\n")
    done = subprocess.run(["make", "release"], cwd=clone, capture_output=True, text=True, check=False)
    assert done.returncode
    assert done.stderr.startswith("release: error: there are changes that are not committed")


@pytest.mark.slow
def test_the_students_archive_trains_builds_the_site_and_passes_what_reads_all_its_files(students):
    """Style, imports, pages and their links; and every test is found. The tests themselves take ten minutes."""
    if (ROOT / ".venv-site").exists():
        (students / ".venv-site").symlink_to(ROOT / ".venv-site")
    for words in (["-m", "ruff", "check", "."], ["-m", "importlinter.cli", "--no-logo"],
                  ["-m", "pytest", "-q", "-n0", "--collect-only"],
                  ["-m", "pytest", "-q", "-n0", "tests/docs/test_pages.py", "tests/test_rules.py"],
                  ["-m", "labs", "run", "lab10", "--workers", "2", "--oversubscribe", "--epochs", "1"],
                  ["site/build.py"]):
        done = subprocess.run([sys.executable, *words], cwd=students, capture_output=True, text=True, check=False,
                              env={"PATH": os.environ["PATH"], "PYTHONPATH": str(students), "HOME": str(students)})
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
