"""`make release`: two archives of the commit in dist/, one for students and one for instructors, both without history.

The same commit gives the same bytes.
"""

from __future__ import annotations

import fnmatch
import gzip
import io
import subprocess
import sys
import tarfile
import tomllib

from labs.run import atomic
from labs.run.environment import RELEASE
from labs.run.errors import ERROR_PREFIX, LabError
from labs.run.paths import ROOT, shown
from labs.run.text import plural

NOT_FOR_STUDENTS = [
    "solutions/*",
    # Tests that know the answers. planted.py and solved.py stay: other tests import them.
    "tests/course/exercises/lab*.py", "tests/course/exercises/test_exercises.py",
    "tests/course/exercises/test_tasks*.py",
    # Grading, and the instructors' pages.
    "labs/tools/grade/*", "tests/tools/grade/*", "grading/*", "site/instructor/*", "tests/site/test_instructor.py",
    "tests/site/test_cheat_sheet.py",  # It draws the sheet again, from lab 2's solution.
    "tests/setup/test_release.py",
]
"""Patterns of paths that the students' archive leaves out; `*` also matches `/`. The only list of them."""


def main() -> None:
    """Write both archives, and print their paths.

    Raises:
        LabError: The folder is not a git clone, or has changes that are not committed.
    """
    if changed := _git("status", "--porcelain").decode().splitlines():
        raise LabError(f"{plural(len(changed), 'uncommitted file')}, such as {changed[0][3:]}; a release is made "
                       "from a commit: commit or stash the changes that `git status` lists")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = f"{project['version']}-{_git('rev-parse', '--short=8', 'HEAD').decode().strip()}"
    for readers in ("students", "instructors"):
        path = ROOT / "dist" / f"labs-{version}-{readers}.tar.gz"
        # An empty name and no time in gzip's header, so that only the content decides about the bytes.
        with atomic.writing(path) as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            _write(packed, version, NOT_FOR_STUDENTS if readers == "students" else [])
        print(f"{shown(path)}: {path.stat().st_size / 1e6:.1f} MB")


def _write(file: gzip.GzipFile, version: str, left_out: list[str]) -> None:
    """Write the files of HEAD as a tar archive, below one folder, without those that a pattern matches."""
    with (tarfile.open(fileobj=io.BytesIO(_git("archive", "HEAD"))) as head,
          tarfile.open(fileobj=file, mode="w") as archive):
        for member in head:
            if member.isdir() or any(fnmatch.fnmatchcase(member.name, pattern) for pattern in left_out):
                continue
            member.pax_headers = {}
            content, member.name = head.extractfile(member), f"labs-{version}/{member.name}"
            member.mode = 0o755 if member.mode & 0o100 else 0o644  # Whatever `tar.umask` of this user is.
            archive.addfile(member, content)
        text = f"release-{version}\n".encode()
        note = tarfile.TarInfo(f"labs-{version}/{RELEASE}")
        note.size, note.mtime = len(text), member.mtime
        archive.addfile(note, io.BytesIO(text))


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise LabError(f"git {words[0]}: {done.stderr.decode(errors='replace').strip()}; make the release in a clone")
    return done.stdout


if __name__ == "__main__":
    try:
        main()
    except LabError as problem:
        sys.exit(f"{ERROR_PREFIX}{problem}")
