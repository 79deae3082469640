"""Hand-ins: a student's answers and cells, executed notebook and records in one zip, which is read as untrusted.

    pack("lab04", "s1234", Path())     writes the zip; executes nothing
    read("lab04_speedup-s1234.zip")    a HandIn; nothing is unpacked onto the disk, and nothing is executed

Only the files that the manifest lists are read, and each must have the sha256 that it states. So it does not matter how
the zip was packed again on the way.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import json
import os
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from labs import exercises
from labs.results import records
from labs.results.records import LabName, Record
from labs.run import atomic, catalogue
from labs.run.environment import STUDENT, STUDENT_ID
from labs.run.errors import LabError, quoted
from labs.run.paths import format_path, results_dir, work_dir
from labs.run.text import plural

MANIFEST, ANSWERS, NOTEBOOK, RECORDS = "manifest.json", "answers.json", "notebook.ipynb", "records.jsonl"
LARGEST = 32 << 20
"""Bytes of a hand-in's zip, and of all its files together."""
MOST_RECORDS = 200
"""The newest records of the lab that are packed, besides those behind the answers."""
MOST_LINES = 5 * MOST_RECORDS
"""Lines of records that are read: those of a packed hand-in, and some."""
Members = Mapping[str, Callable[[], bytes]]
"""What reads each file, by its name."""


class Manifest(msgspec.Struct, frozen=True):
    """What a hand-in says about itself; `files` and the student's id are as trustworthy as the student."""

    lab: LabName
    student: Annotated[str, msgspec.Meta(pattern=rf"^{STUDENT_ID}\Z")]
    created: str
    files: dict[Literal["answers.json", "notebook.ipynb", "records.jsonl"], str]
    """The sha256 of each file."""
    format: Annotated[int, msgspec.Meta(ge=2, le=2)] = 2


@dataclasses.dataclass(frozen=True)
class HandIn:
    """A hand-in, read from its zip."""

    manifest: Manifest
    answers: dict[str, dict[str, Any]]
    """As `exercises.answers` saved them, by the exercise's id, "lab04.q1"."""
    notebook: dict[str, Any]
    """{} if it is missing."""
    records: list[Record]
    """Oldest first; each fits the schema."""
    damaged: list[str]
    """Why other records cannot be read."""


def read(path: str | os.PathLike) -> HandIn:
    """Read a hand-in from an untrusted zip or folder, in memory; LabError names why one is refused."""
    path = Path(path)
    try:
        return _parse(_list_folder(path) if path.is_dir() else _list_zip(atomic.read_bytes(path, LARGEST)))
    # `zipfile` raises ValueError for a negative offset and a name that is not UTF-8, NotImplementedError for a later
    # version of zip and for patched data, RuntimeError for an encrypted file.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError):
        raise LabError(f"{path}: damaged, or not a zip; unpack it into a folder, or hand in the zip again") from None
    except LabError as problem:
        raise LabError(f"{path}: {problem}; hand in the zip as `labs handin` wrote it") from None


def _list_folder(folder: Path) -> Members:
    files = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return {file.relative_to(folder).as_posix(): functools.partial(atomic.read_bytes, file, LARGEST)
            for file in files if not file.is_symlink()}


def _list_zip(content: bytes) -> Members:
    archive = zipfile.ZipFile(io.BytesIO(content))
    # Windows' own packer writes backslashes.
    return {member.filename.replace("\\", "/"): functools.partial(_unzip, archive, member)
            for member in archive.infolist() if not member.is_dir()}


def _unzip(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return a file, or as much of it as shows that it is too large."""
    # The other methods unpack far more than they are asked for.
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise LabError(f"{quoted(member.filename)} is not compressed by deflate")
    return archive.open(member).read(LARGEST + 1)


def _parse(members: Members) -> HandIn:
    """Return the hand-in of which these are the files, in whatever folder it lies."""
    manifests = [name for name in members if name.rpartition("/")[2] == MANIFEST]
    if len(manifests) != 1:
        raise LabError(("no" if not manifests else f"{len(manifests)} files") + f" {MANIFEST}")
    try:
        manifest = msgspec.json.decode(members[manifests[0]](), type=Manifest)
    except (ValueError, RecursionError) as problem:
        raise LabError(f"{MANIFEST}: {problem}") from None
    folder = manifests[0].removesuffix(MANIFEST)
    files: dict[Any, bytes] = {}
    for name, digest in manifest.files.items():
        files[name] = _read_member(members, folder + name, digest, LARGEST - sum(map(len, files.values())))
    answers = _read_object(files, ANSWERS)
    if not all(isinstance(answer, dict) for answer in answers.values()):
        raise LabError(f"{ANSWERS} has an answer that is not an object")
    return HandIn(manifest, answers, _read_object(files, NOTEBOOK), *_read_records(files.get(RECORDS, b"")))


def _read_member(members: Members, name: str, digest: str, left: int) -> bytes:
    """Return the content of a file that the manifest lists; it may have as many bytes as are left of LARGEST."""
    if name not in members:
        raise LabError(f"{quoted(name)} is missing")
    content = members[name]()
    if len(content) > left:
        raise LabError(f"its files are larger than {LARGEST >> 20} MiB together")
    if hashlib.sha256(content).hexdigest() != digest:
        raise LabError(f"{quoted(name)} was changed after it was packed (its sha256 differs)")
    return content


def _read_object(files: Mapping[Any, bytes], name: str) -> dict[str, Any]:
    """Return a file's JSON object; {} if there is no such file."""
    try:
        value = (exercises.child.loads if name == ANSWERS else json.loads)(files.get(name, b"{}").decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        raise LabError(f"{name} is not JSON: {problem}") from None
    if not isinstance(value, dict):
        raise LabError(f"{name} does not hold an object")
    return value


def _read_records(content: bytes) -> tuple[list[Record], list[str]]:
    """Return the records that fit the schema, oldest first, and why others do not."""
    valid, damaged = [], []
    if content.count(b"\n") > MOST_LINES:
        raise LabError(f"{RECORDS} has more than {MOST_LINES:,} lines")
    for number, line in enumerate(content.splitlines(), 1):
        try:
            valid.append(records.parse(line, f"{RECORDS}, line {number}"))
        except LabError as problem:
            damaged.append(str(problem))
    return sorted(valid, key=lambda record: record["started"]), damaged


def pack(lab: str, student: str, folder: Path) -> tuple[Path, HandIn, list[str]]:
    """Write a student's hand-in, `<lab>-<student>.zip`; return its path, what `read` will, and what is missing.

    Args:
        lab: Its name, its number or a unique prefix.
        student: The student's id.
        folder: Where to write the zip; an earlier one is replaced.

    Raises:
        LabError: No lab has that name, or the hand-in would be too large.
    """
    lab = catalogue.resolve(lab)
    files: dict[Any, bytes] = {}
    missing = [*_add_answers(lab, student, files), *_add_notebook(lab, files), *_add_records(lab, student, files)]
    manifest = Manifest(lab, student, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                        {name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
    stream, path = io.BytesIO(), folder / f"{lab}-{student}.zip"
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {MANIFEST: msgspec.json.encode(manifest), **files}.items():
            archive.writestr(name, content)
    hand_in = _parse(_list_zip(stream.getvalue()))  # What would be refused is never written.
    with atomic.writing(path) as file:
        file.write(stream.getvalue())
    return path, hand_in, missing


def _add_answers(lab: str, student: str, files: dict[Any, bytes]) -> list[str]:
    """Add the answers and cells that `exercises.check` has saved; return what is missing."""
    saved = {name: exercises.answers.load(name) for name in exercises.entries(lab)}
    files[ANSWERS] = json.dumps({name: answer for name, answer in saved.items() if answer}, indent=1).encode()
    return [f"{name}: {STUDENT} was not {student} when its cell ran; run it again" if answer else
            f"{name}: no answer; write it in the notebook, and run its cell"
            for name, answer in saved.items() if not answer or answer["student"] != student]


def _add_notebook(lab: str, files: dict[Any, bytes]) -> list[str]:
    """Add the working copy as it was saved; return what is missing in it, and other notebooks of the lab."""
    path, mark = work_dir() / f"{lab}.ipynb", f'"{lab[:5]}.'
    copies = [each for each in sorted(work_dir().glob("*.ipynb")) if each.stem not in catalogue.lab_names()]
    missing = [f"{format_path(each)}: a notebook of {lab} that is not packed; only {path.name} is" for each in copies
               if mark in each.read_text(encoding="utf-8", errors="replace").replace("\\", "")]
    try:
        content = atomic.read_bytes(path, LARGEST)
        cells = [cell for cell in json.loads(content.decode("utf-8-sig"))["cells"]
                 if cell["cell_type"] == "code" and cell["source"]]
    except FileNotFoundError:
        return [f"{format_path(path)}: no such notebook; `labs notebook` makes it", *missing]
    except (ValueError, TypeError, KeyError):
        return [f"{format_path(path)}: not a notebook; it is left out", *missing]
    files[NOTEBOOK] = content
    if left := sum(cell.get("execution_count") is None for cell in cells):
        missing.append(f"{format_path(path)}: {left} of {len(cells)} cells have not run, or it has not been saved "
                       "since")
    answered = max((each.stat().st_mtime for each in work_dir().glob(f"answers/{lab[:5]}.*")), default=0)
    if path.stat().st_mtime < answered:
        missing.append(f"{format_path(path)}: older than your last answer; save the notebook")
    return missing


def _add_records(lab: str, student: str, files: dict[Any, bytes]) -> list[str]:
    """Add the lab's newest records and those behind the answers; return what is missing in them."""
    every = records.read_all(lab)
    used = {run for answer in json.loads(files[ANSWERS]).values() for run in answer["runs"]}
    packed = [record for age, record in enumerate(every, -len(every)) if age >= -MOST_RECORDS or record["run"] in used]
    files[RECORDS] = "\n".join(map(json.dumps, packed)).encode()
    missing = [] if packed else [f"no record of {lab} in {format_path(results_dir())}"]
    if others := [record["run"] for record in packed if record.get("student") != student]:
        missing.append(f"{plural(len(others), 'record')} without your id, such as {others[-1]}: "
                       f"{STUDENT} was not set when it was made")
    return missing
