"""Hand-ins: a student's answers, cells, executed notebook and records in one zip, which is read as untrusted.

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
import re
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from labs import exercises
from labs.results import records
from labs.results.schema import LabName, Record
from labs.run import atomic, catalogue
from labs.run.environment import STUDENT, STUDENT_ID
from labs.run.errors import LabError, quoted
from labs.run.paths import format_path, results_dir, work_dir
from labs.run.text import plural

MANIFEST, ANSWERS, NOTEBOOK = "manifest.json", "answers.json", "notebook.ipynb"
MEMBERS = re.compile(rf"answers\.json|notebook\.ipynb|functions/{STUDENT_ID}\.py|records/{STUDENT_ID}/record\.json")
JUNK = re.compile(r"(?i)(.*/)?(__MACOSX/.*|\._[^/]*|\.DS_Store|Thumbs\.db|desktop\.ini)")
"""Files that a Mac or Windows adds."""
MOST_FILES, LARGEST_FILE, LARGEST_TOTAL = 400, 32 << 20, 64 << 20
MOST_RECORDS = 200
"""The newest records of the lab that are packed, besides those behind the answers."""
AS_WRITTEN = "; hand in the zip as `labs handin` wrote it"
Members = Mapping[str, Callable[[], bytes]]
"""What reads each file, by its name."""


class Manifest(msgspec.Struct, frozen=True):
    """What a hand-in says about itself; `files` and the student's id are as trustworthy as the student."""

    lab: LabName
    student: Annotated[str, msgspec.Meta(pattern=rf"^{STUDENT_ID}\Z")]
    created: str
    files: Annotated[dict[str, str], msgspec.Meta(max_length=MOST_FILES)]
    """The sha256 of each file, by its name in the zip."""
    runs: dict[str, list[str]] = {}
    """The runs whose records each answer was judged from, by the question's id."""
    missing: list[str] = []
    """What the student was told is missing."""
    format: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1


@dataclasses.dataclass(frozen=True)
class HandIn:
    """A hand-in, read from its zip."""

    manifest: Manifest
    answers: dict[str, Any]
    """By the question's id, "lab04.q1", as `exercises.check` judged them."""
    functions: dict[str, str]
    """The text of the cell that defines the function, by the task's id, "lab02.shard"."""
    notebook: dict[str, Any] | None
    records: list[Record]
    """Oldest first; each fits the schema."""
    damaged: dict[str, str]
    """Why a record cannot be read, by its name in the zip."""
    others: list[str]
    """Files that the manifest does not list, which are not read."""


def read(path: str | os.PathLike) -> HandIn:
    """Read a hand-in from an untrusted zip or folder, in memory.

    Raises:
        LabError: The hand-in is refused; one line that names the cause.
        OSError: The file does not exist, or may not be read.
    """
    path = Path(path)
    try:
        return _parse(_in_folder(path) if path.is_dir() else _in_zip(atomic.read_bytes(path, LARGEST_FILE)))
    # `zipfile` raises ValueError for a negative offset and a name that is not UTF-8, NotImplementedError for a later
    # version of zip and for patched data, RuntimeError for an encrypted file.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError):
        raise LabError(f"{path}: damaged, or not a zip; unpack it into a folder, or hand in the zip again") from None
    except LabError as problem:
        raise LabError(f"{path}: {problem}") from None


def _in_folder(folder: Path) -> Members:
    files = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return {file.relative_to(folder).as_posix(): functools.partial(atomic.read_bytes, file, LARGEST_FILE)
            for file in files if not file.is_symlink()}


def _in_zip(content: bytes, nested: bool = False) -> Members:
    """Return the files of a zip; of the zip in it, if that is all that it holds."""
    archive = zipfile.ZipFile(io.BytesIO(content))
    # Windows' own packer writes backslashes.
    members = {member.filename.replace("\\", "/"): functools.partial(_unzip, archive, member)
               for member in archive.infolist() if not member.is_dir()}
    inner = [name for name in members if not JUNK.fullmatch(name)]
    if not nested and len(inner) == 1 and inner[0].lower().endswith(".zip"):
        return _in_zip(members[inner[0]](), nested=True)
    return members


def _unzip(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return a file, or as much of it as shows that it is too large."""
    # The other methods unpack far more than they are asked for.
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise LabError(f"{quoted(member.filename)} is not compressed by deflate" + AS_WRITTEN)
    return archive.open(member).read(LARGEST_FILE + 1)


def _parse(members: Members) -> HandIn:
    """Return the hand-in of which these are the files, in whatever folder it lies."""
    manifests = [name for name in members if name.rpartition("/")[2] == MANIFEST and not JUNK.fullmatch(name)]
    if len(manifests) != 1:
        raise LabError(("no" if not manifests else f"{len(manifests)} files") + f" {MANIFEST}" + AS_WRITTEN)
    folder = manifests[0].removesuffix(MANIFEST)
    try:
        manifest = msgspec.json.decode(members[manifests[0]](), type=Manifest)
    except (ValueError, RecursionError) as problem:
        raise LabError(f"{MANIFEST}: {problem}" + AS_WRITTEN) from None
    files, total = {}, 0
    for name, digest in manifest.files.items():
        files[name] = _listed(members, folder, name, digest)
        if (total := total + len(files[name])) > LARGEST_TOTAL:
            raise LabError(f"more than {LARGEST_TOTAL >> 20} MiB")
    answers, notebook = (_json(files, name) for name in (ANSWERS, NOTEBOOK))
    functions = {name[len("functions/"):-len(".py")]: content.decode("utf-8-sig", "replace")
                 for name, content in files.items() if name.startswith("functions/")}
    known = {manifests[0], *(folder + name for name in files)}
    others = [name for name in members if name not in known and not JUNK.fullmatch(name)]
    return HandIn(manifest, answers or {}, functions, notebook, *_records(files), others)


def _listed(members: Members, folder: str, name: str, digest: str) -> bytes:
    """Return the content of a file that the manifest lists."""
    if not MEMBERS.fullmatch(name):
        raise LabError(f"{quoted(name)} does not belong in a hand-in" + AS_WRITTEN)
    if folder + name not in members:
        raise LabError(f"{name} is missing" + AS_WRITTEN)
    content = members[folder + name]()
    if len(content) > LARGEST_FILE:
        raise LabError(f"{name} is larger than {LARGEST_FILE >> 20} MiB")
    if hashlib.sha256(content).hexdigest() != digest:
        raise LabError(f"{name} was changed after it was packed (its sha256 differs)" + AS_WRITTEN)
    return content


def _json(files: Mapping[str, bytes], name: str) -> dict[str, Any] | None:
    """Return a file's JSON object; None if there is no such file."""
    if name not in files:
        return None
    try:
        value = (exercises.child.loads if name == ANSWERS else json.loads)(files[name].decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        raise LabError(f"{name} is not JSON: {problem}" + AS_WRITTEN) from None
    if not isinstance(value, dict):
        raise LabError(f"{name} does not hold an object" + AS_WRITTEN)
    return value


def _records(files: Mapping[str, bytes]) -> tuple[list[Record], dict[str, str]]:
    """Return the records that fit the schema, oldest first, and why others do not, by name."""
    valid, damaged = [], {}
    for name, content in files.items():
        if name.startswith("records/"):
            try:
                valid.append(records.parse(content, name))
            except LabError as problem:
                damaged[name] = str(problem)
    return sorted(valid, key=lambda record: record["started"]), damaged


def pack(lab: str, student: str, folder: Path) -> tuple[Path, HandIn]:
    """Write a student's hand-in, `<lab>-<student>.zip`; return its path and what `read` will, with what is missing.

    Args:
        lab: Its name, its number or a unique prefix.
        student: The student's id.
        folder: Where to write the zip; an earlier one is replaced.

    Raises:
        LabError: No lab has that name, or the hand-in would be too large.
        OSError: The zip cannot be written.
    """
    lab = catalogue.resolve(lab)
    files: dict[str, bytes] = {}
    runs, missing = _add_answers(lab, student, files)
    missing += _add_notebook(lab, files)
    missing += _add_records(lab, student, {name for names in runs.values() for name in names}, files)
    manifest = Manifest(
        lab=lab, student=student, created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        runs=runs, missing=missing,
        files={name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
    stream, path = io.BytesIO(), folder / f"{lab}-{student}.zip"
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {MANIFEST: msgspec.json.format(msgspec.json.encode(manifest), indent=1), **files}.items():
            archive.writestr(name, content)
    hand_in = _parse(_in_zip(stream.getvalue()))  # What would be refused is never written.
    with atomic.writing(path) as file:
        file.write(stream.getvalue())
    return path, hand_in


def _add_answers(lab: str, student: str, files: dict[str, bytes]) -> tuple[dict[str, list[str]], list[str]]:
    """Add the answers and cells that `exercises.check` has kept; return their runs, and what is missing."""
    answers, runs, missing = {}, {}, []
    for question in exercises.entries(lab):
        kept = exercises.kept.load(question)
        if kept is None:
            missing.append(f"{question}: no answer; write it in the notebook, and run its cell")
            continue
        if kept.get("student") != student:
            missing.append(f"{question}: {STUDENT} was not {student} when its cell ran; run it again")
        if "cell" in kept:
            files[f"functions/{question}.py"] = kept["cell"].encode(errors="replace")
        else:
            answers[question] = kept["answer"]
        runs[question] = kept.get("runs", [])
    files[ANSWERS] = (json.dumps(answers, indent=1) + "\n").encode()
    return {question: names for question, names in runs.items() if names}, missing


def _add_notebook(lab: str, files: dict[str, bytes]) -> list[str]:
    """Add the working copy as it was saved; return what is missing in it, and other notebooks of the lab."""
    path, mark = work_dir() / f"{lab}.ipynb", f'"{lab[:5]}.'
    copies = [each for each in sorted(work_dir().glob("*.ipynb")) if each.stem not in catalogue.lab_names()]
    others = [f"{format_path(each)}: a notebook of {lab} that is not packed; only {path.name} is" for each in copies
              if mark in each.read_text(encoding="utf-8", errors="replace").replace("\\", "")]
    try:
        content = atomic.read_bytes(path, LARGEST_FILE)
        cells = [cell for cell in json.loads(content.decode("utf-8-sig"))["cells"]
                 if cell["cell_type"] == "code" and cell["source"]]
    except FileNotFoundError:
        return [f"{format_path(path)}: no such notebook; `labs notebook` makes it", *others]
    except (ValueError, TypeError, KeyError, RecursionError):
        return [f"{format_path(path)}: not a notebook; it is left out", *others]
    files[NOTEBOOK] = content
    left = sum(cell.get("execution_count") is None for cell in cells)
    late = max((each.stat().st_mtime for each in work_dir().glob(f"answers/{lab[:5]}.*")), default=0)
    lines = ([f"{format_path(path)}: {left} of {len(cells)} cells have not run, or it has not been saved since"]
             * bool(left)
             + [f"{format_path(path)}: older than your last answer; save the notebook"] * (path.stat().st_mtime < late))
    return lines + others


def _add_records(lab: str, student: str, used: set[str], files: dict[str, bytes]) -> list[str]:
    """Add the lab's newest records and those behind the answers; return what is missing in them."""
    every = records.read_all(lab)
    packed = [record for age, record in enumerate(every, -len(every)) if age >= -MOST_RECORDS or record["run"] in used]
    for number, record in enumerate(packed, 1):
        name = f"{number:03}-" + re.sub(r"[^A-Za-z0-9_.+=-]", "_", record["run"])[:90]
        files[f"records/{name}/record.json"] = (json.dumps(record, indent=1) + "\n").encode()
    missing = [f"{lab}/{name}: an answer was judged from this run, and its record is gone"
               for name in sorted(used - {record["run"] for record in packed})]
    if not packed:
        missing.append(f"no record of {lab} in {format_path(results_dir())}")
    if others := [record["run"] for record in packed if record.get("student") != student]:
        missing.append(f"{plural(len(others), 'record')} without your id, such as {others[-1]}: "
                       f"{STUDENT} was not set when it was made")
    return missing
