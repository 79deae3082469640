"""Hand-ins: a student's answers and cells, executed notebook and records in one zip, which is read as untrusted.

    pack("lab04", "s1234", Path())           writes the zip; executes nothing
    read(Path("lab04_speedup-s1234.zip"))    a HandIn; nothing is unpacked onto the disk, and nothing is executed

Only the files that the manifest lists are read, and each must have the sha256 that it states. So it does not matter how
the zip was packed again on the way.
"""

import dataclasses
import hashlib
import io
import json
import os
import re
import time
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from labs import exercises
from labs.results import records
from labs.results.records import LabName, Record
from labs.run import atomic, catalogue
from labs.run.environment import STUDENT, STUDENT_ID
from labs.run.errors import LabError, one_line, plural
from labs.run.paths import format_path, results_dir, work_dir

MANIFEST, ANSWERS, NOTEBOOK, RECORDS = "manifest.json", "answers.json", "notebook.ipynb", "records.jsonl"
LARGEST = 32 << 20
"""Bytes of a hand-in's zip, and of all its files together."""
MOST_RECORDS = 200
"""The newest records of the lab that are packed, besides those behind the answers; five times as many are read."""


class Manifest(msgspec.Struct, frozen=True):
    """What a hand-in says about itself, with the sha256 of each file; all of it is as trustworthy as the student."""

    lab: LabName
    student: Annotated[str, msgspec.Meta(pattern=rf"^{STUDENT_ID}\Z")]
    created: str
    files: dict[Literal["answers.json", "notebook.ipynb", "records.jsonl"], str]
    format: Literal[2] = 2


@dataclasses.dataclass(frozen=True)
class HandIn:
    """A hand-in, read from its zip: answers by the exercise's id, records oldest first, and why others are damaged."""

    manifest: Manifest
    answers: dict[str, dict[str, Any]]
    notebook: dict[str, Any]
    records: list[Record]
    damaged: list[str]


def read(path: Path) -> HandIn:
    """Read a hand-in from an untrusted zip or folder, in memory; LabError names why one is refused."""
    try:
        files: dict[str, bytes] = {}
        for name, content in _read_folder(path) if path.is_dir() else _read_zip(_read_file(path)):
            if name in files:
                raise LabError(f"it holds two files {name}")
            files[name] = content
        return _parse(files)
    # `zipfile` raises NotImplementedError, a RuntimeError, for a later version of zip, and ValueError for odd names.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, LabError) as problem:
        raise LabError(f"{path}: {one_line(problem)}; hand in the zip as `labs handin` wrote it") from None


def _read_file(path: Path) -> bytes:
    """Return a file's content; raise LabError if it is too large, or a device without an end."""
    if not path.is_file():
        raise LabError(f"{path}: it is not a regular file")
    with open(path, "rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise LabError(f"{path}: it is larger than {LARGEST >> 20} MiB")
    return content


def _read_folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    for parent, _, names in os.walk(folder):
        for name in {MANIFEST, ANSWERS, NOTEBOOK, RECORDS}.intersection(names):
            if not Path(parent, name).is_symlink():  # It could show another student's.
                yield name, _read_file(Path(parent, name))


def _read_zip(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield each file that is a hand-in's, or as much of it as shows that it is too large."""
    archive = zipfile.ZipFile(io.BytesIO(content))
    for member in archive.infolist():
        name = re.split(r"[/\\]", member.filename)[-1]  # Windows' own packer writes backslashes.
        if name in (MANIFEST, ANSWERS, NOTEBOOK, RECORDS):
            # The other methods unpack far more than they are asked for.
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise LabError(f"{name} is not compressed by deflate")
            yield name, archive.open(member).read(LARGEST + 1)


def _parse(files: dict[str, bytes]) -> HandIn:
    """Return the hand-in of which these are the files."""
    if sum(map(len, files.values())) > LARGEST:
        raise LabError(f"its files are larger than {LARGEST >> 20} MiB together")
    if MANIFEST not in files:
        raise LabError(f"no {MANIFEST}")
    manifest = msgspec.json.decode(files[MANIFEST], type=Manifest)
    for name, digest in manifest.files.items():
        if name not in files or hashlib.sha256(files[name]).hexdigest() != digest:
            raise LabError(f"{name} is missing, or was changed after it was packed (its sha256 differs)")
    answers, notebook = (exercises.child.loads(files[name].decode("utf-8-sig")) if name in manifest.files else {}
                         for name in (ANSWERS, NOTEBOOK))
    if not all(isinstance(each, dict) for each in (answers, notebook, *answers.values())):
        raise LabError(f"{ANSWERS} or {NOTEBOOK} does not hold what it should")
    lines = files[RECORDS].splitlines() if RECORDS in manifest.files else []
    if len(lines) > 5 * MOST_RECORDS:
        raise LabError(f"{RECORDS} has more than {5 * MOST_RECORDS:,} lines")
    valid, damaged = [], []
    for number, line in enumerate(lines, 1):
        try:
            valid.append(records.parse(line, f"{RECORDS}, line {number}"))
        except LabError as problem:
            damaged.append(str(problem))
    return HandIn(manifest, answers, notebook, sorted(valid, key=lambda record: record["started"]), damaged)


def pack(lab: str, student: str, folder: Path) -> tuple[Path, HandIn, list[str]]:
    """Write a student's hand-in, `<lab>-<student>.zip`; return its path, what `read` will, and what is missing."""
    lab, path = catalogue.resolve(lab), work_dir() / f"{catalogue.resolve(lab)}.ipynb"
    saved = {name: exercises.load_answer(name) for name in exercises.entries(lab)}
    answers = {name: answer for name, answer in saved.items() if answer}
    used = {run for answer in answers.values() for run in answer["runs"]}
    every = records.read_all(lab)
    packed = [run for age, run in enumerate(every, -len(every)) if age >= -MOST_RECORDS or run["run"] in used]
    files: dict[Any, bytes] = {ANSWERS: json.dumps(answers, indent=1).encode(),
                               RECORDS: "\n".join(map(json.dumps, packed)).encode(),
                               **({NOTEBOOK: path.read_bytes()} if path.exists() else {})}
    manifest = Manifest(lab, student, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                        {name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
    files[MANIFEST] = msgspec.json.encode(manifest)
    hand_in, target = _parse(files), folder / f"{lab}-{student}.zip"  # What would be refused is never written.
    with atomic.writing(target) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    missing = [f"{name}: no answer; write it in the notebook, and run its cell" for name in saved if not saved[name]]
    missing += [] if packed else [f"no record of {lab} in {format_path(results_dir())}"]
    if others := [run["run"] for run in packed if run.get("student") != student]:
        missing.append(f"{plural(len(others), 'record')} without your id, such as {others[-1]}: {STUDENT} was not set")
    return target, hand_in, [*missing, *_check_notebook(path, hand_in)]


def _check_notebook(path: Path, hand_in: HandIn) -> Iterator[str]:
    """Yield what is missing in the working copy, and other notebooks of the lab."""
    lab = path.stem
    for copy in sorted(work_dir().glob("*.ipynb")):
        text = copy.read_text(encoding="utf-8", errors="replace").replace("\\", "")
        if copy.stem not in catalogue.lab_names() and f'"{lab[:5]}.' in text:
            yield f"{format_path(copy)}: a notebook of {lab} that is not packed; only {path.name} is"
    if not hand_in.notebook:
        yield f"{format_path(path)}: no such notebook; `labs notebook` makes it"
        return
    cells = [cell for cell in hand_in.notebook["cells"] if cell["cell_type"] == "code" and cell["source"]]
    if left := sum(cell.get("execution_count") is None for cell in cells):
        yield f"{format_path(path)}: {left} of {len(cells)} cells have not run, or it has not been saved since"
    answered = max((each.stat().st_mtime for each in work_dir().glob(f"answers/{lab[:5]}.*")), default=0)
    if path.stat().st_mtime < answered:
        yield f"{format_path(path)}: older than your last answer; save the notebook"
