"""Hand-ins: a student's answers, functions, executed notebook and records in one zip, which is read as untrusted.

    pack("lab04", "s1234", Path())     writes the zip; executes nothing
    read("lab04_speedup-s1234.zip")    a HandIn; nothing is unpacked onto the disk, and nothing is executed
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import platform
import re
import stat
import struct
import time
import zipfile
import zlib
from pathlib import Path
from typing import Annotated, Any

import msgspec

from labs.course import exercises
from labs.results import records
from labs.results.schema import LabName, Record
from labs.run import atomic, catalogue, environment
from labs.run.errors import LabError, quoted
from labs.run.paths import results_dir, shown, work_dir
from labs.run.student import ID, VARIABLE
from labs.run.text import plural

MANIFEST, ANSWERS, NOTEBOOK = "manifest.json", "answers.json", "notebook.ipynb"
MEMBERS = re.compile(rf"manifest\.json|answers\.json|notebook\.ipynb|functions/{ID}\.py|records/{ID}/record\.json")
DEVICES = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")
"""Names that Windows gives to devices, in every folder."""
MOST_FILES, LARGEST_ZIP, LARGEST_FILE, LARGEST_TOTAL = 400, 32 << 20, 32 << 20, 64 << 20
HIGHEST_RATIO = 100
"""Bytes of all files per byte of the zip, beyond the first MiB; a hand-in has about 10."""
MOST_RECORDS = 200
"""The newest records of the lab that are packed, besides those behind the answers."""
AS_WRITTEN = "; hand in the zip as `labs handin` wrote it"


class Manifest(msgspec.Struct, frozen=True):
    """What a hand-in says about itself; `files` and the student's id are as trustworthy as the student."""

    lab: LabName
    student: Annotated[str, msgspec.Meta(pattern=rf"^{ID}\Z")]
    created: str
    files: dict[str, str]
    """The sha256 of each file, by its name in the zip."""
    runs: dict[str, list[str]] = {}
    """The runs whose records each answer was judged from, by the question's id."""
    missing: list[str] = []
    """What the student was told is missing."""
    format: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    commit: str | None = None
    kit: str = ""
    python: str = ""
    tensorflow: str | None = None


@dataclasses.dataclass(frozen=True)
class HandIn:
    """A hand-in, read from its zip."""

    path: Path
    manifest: Manifest
    answers: dict[str, Any]
    """By the question's id, "lab04.q1"; a key of a dictionary that is a whole number is an int."""
    functions: dict[str, str]
    """Python source by the task's id, "lab02.shard", with the imports and functions of other cells that it uses."""
    notebook: dict[str, Any] | None
    records: list[Record]
    """Oldest first; each fits the schema."""
    damaged: dict[str, str]
    """Why a record cannot be read, by its name in the zip."""


def read(path: str | os.PathLike) -> HandIn:
    """Read a hand-in from an untrusted zip, in memory.

    Raises:
        LabError: It is refused; one line that names the cause.
        OSError: The file does not exist, or may not be read.
    """
    path = Path(path)
    return _parse(atomic.read_bytes(path, LARGEST_ZIP), path)


def _parse(content: bytes, path: Path) -> HandIn:
    try:
        files = _files(content)
        manifest = _manifest(files)
        answers, notebook = (_json(files, name) for name in (ANSWERS, NOTEBOOK))
        functions = {name[len("functions/"):-len(".py")]: _text(files, name)
                     for name in files if name.startswith("functions/")}
    # `zipfile` raises ValueError for a negative offset and a name that is not UTF-8, NotImplementedError for a later
    # version of zip and for patched data.
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, struct.error, ValueError) as problem:
        raise LabError(f"{path}: damaged or not a zip: {problem}; hand it in again") from None
    except LabError as problem:
        raise LabError(f"{path}: {problem}") from None
    valid, damaged = _records(files)
    return HandIn(path, manifest, answers or {}, functions, notebook, valid, damaged)


def _files(content: bytes) -> dict[str, bytes]:
    """Return the files in a zip by name.

    Raises:
        LabError: The zip has what no hand-in has.
    """
    # The end of the central directory, before `zipfile` reads all of it: a million empty files fit into 64 MiB.
    end = content[-22:]
    if not end.startswith(b"PK\5\6") or content[-42:-38] == b"PK\6\7":
        raise LabError("incomplete, or not a zip" + AS_WRITTEN)
    if struct.unpack("<H", end[10:12])[0] > MOST_FILES or struct.unpack("<I", end[12:16])[0] > MOST_FILES * 300:
        raise LabError(f"more than {MOST_FILES} files")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        _refuse(members, len(content))
        # `archive.read` would decompress more than the declared size before it cuts the rest off.
        return {member.filename: archive.open(member).read(member.file_size) for member in members}


def _refuse(members: list[zipfile.ZipInfo], zip_bytes: int) -> None:
    """Raise unless all members are plain, small and expected; nothing has been decompressed yet."""
    seen: set[str] = set()
    for member in members:
        name, shown = member.orig_filename, quoted(member.orig_filename)  # `filename` ends at the first NUL.
        if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
            raise LabError(f"{shown} is a link, a folder or a device" + AS_WRITTEN)
        if not MEMBERS.fullmatch(name) or any(map(DEVICES.fullmatch, name.split("/"))):
            raise LabError(f"{shown} does not belong in a hand-in" + AS_WRITTEN)
        if name.casefold() in seen:
            raise LabError(f"{shown} appears twice")
        if member.flag_bits & 0x41:
            raise LabError(f"{shown} is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise LabError(f"{shown} is compressed by an unusual method" + AS_WRITTEN)
        if member.file_size > LARGEST_FILE:
            raise LabError(f"{shown} is larger than {LARGEST_FILE >> 20} MiB")
        seen.add(name.casefold())
    total = sum(member.file_size for member in members)
    if len(members) > MOST_FILES or total > LARGEST_TOTAL:
        raise LabError(f"more than {MOST_FILES} files or {LARGEST_TOTAL >> 20} MiB")
    if total > HIGHEST_RATIO * zip_bytes + (1 << 20):
        raise LabError(f"a zip of {zip_bytes:,} bytes that holds {total:,}")


def _manifest(files: dict[str, bytes]) -> Manifest:
    """Return the manifest, of which every file has the digest, and take it out of the files."""
    if MANIFEST not in files:
        raise LabError(f"no {MANIFEST}" + AS_WRITTEN)
    try:
        manifest = msgspec.json.decode(files.pop(MANIFEST), type=Manifest)
    except (ValueError, RecursionError) as problem:
        raise LabError(f"{MANIFEST}: {problem}" + AS_WRITTEN) from None
    if differing := sorted(files.keys() ^ manifest.files.keys()):
        raise LabError(f"the manifest and the zip differ in {quoted(differing[0])}" + AS_WRITTEN)
    for name, content in files.items():
        if hashlib.sha256(content).hexdigest() != manifest.files[name]:
            raise LabError(f"{name} was changed after it was packed (its sha256 differs)" + AS_WRITTEN)
    return manifest


def _text(files: dict[str, bytes], name: str) -> str:
    try:
        return files[name].decode()
    except UnicodeDecodeError:
        raise LabError(f"{name} is not UTF-8" + AS_WRITTEN) from None


def _json(files: dict[str, bytes], name: str) -> dict[str, Any] | None:
    """Return a file's JSON object; None if there is no such file."""
    if name not in files:
        return None
    try:
        value = json.loads(_text(files, name), object_pairs_hook=_with_numbers if name == ANSWERS else None)
    except (ValueError, RecursionError) as problem:
        raise LabError(f"{name} is not JSON: {problem}" + AS_WRITTEN) from None
    if not isinstance(value, dict):
        raise LabError(f"{name} does not hold an object" + AS_WRITTEN)
    return value


def _with_numbers(pairs: list[tuple[str, Any]]) -> dict[Any, Any]:
    """Return a dictionary whose keys that are whole numbers are ints again, as in `{32: 1.7}`."""
    return {int(key) if re.fullmatch(r"-?\d{1,9}", key, re.ASCII) else key: value for key, value in pairs}


def _records(files: dict[str, bytes]) -> tuple[list[Record], dict[str, str]]:
    """Return the records that fit the schema, oldest first, and why others do not, by name."""
    valid, damaged = [], {}
    for name, content in files.items():
        if name.startswith("records/"):
            try:
                valid.append(records.parse(content, name))
            except LabError as problem:
                damaged[name] = str(problem)
    return sorted(valid, key=lambda record: record["started"]), damaged


def pack(lab: str, student: str, folder: Path) -> HandIn:
    """Write a student's hand-in, `<lab>-<student>.zip`, and return what `read` will; its manifest says what is missing.

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
    runs, missing = _add_answers(lab, files)
    missing += _add_notebook(lab, files)
    missing += _add_records(lab, student, {name for names in runs.values() for name in names}, files)
    manifest = Manifest(
        lab=lab, student=student, created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        commit=environment.commit(), kit=environment.version("labs") or "", python=platform.python_version(),
        tensorflow=environment.version("tensorflow"), runs=runs, missing=missing,
        files={name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
    stream, path = io.BytesIO(), folder / f"{lab}-{student}.zip"
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {MANIFEST: msgspec.json.format(msgspec.json.encode(manifest), indent=1), **files}.items():
            archive.writestr(name, content)
    hand_in = _parse(stream.getvalue(), path)  # What would be refused is never written.
    with atomic.writing(path) as file:
        file.write(stream.getvalue())
    return hand_in


def _add_answers(lab: str, files: dict[str, bytes]) -> tuple[dict[str, list[str]], list[str]]:
    """Add the answers and functions that `exercises.check` has kept; return their runs, and what is missing."""
    answers, runs, missing = {}, {}, []
    for question in {**exercises.questions(lab), **exercises.tasks(lab)}:
        kept = exercises.kept.load(question)
        if kept is None:
            missing.append(f"{question}: no answer; write it in the notebook, and run its cell")
        elif "source" in kept:
            files[f"functions/{question}.py"] = kept["source"].encode(errors="replace")
        else:
            answers[question] = kept["answer"]
        runs[question] = (kept or {}).get("runs", [])
    files[ANSWERS] = (json.dumps(answers, indent=1) + "\n").encode()
    return {question: names for question, names in runs.items() if names}, missing


def _add_notebook(lab: str, files: dict[str, bytes]) -> list[str]:
    """Add the working copy as it was saved; return what is missing in it."""
    path = work_dir() / f"{lab}.ipynb"
    try:
        content = atomic.read_bytes(path, LARGEST_FILE)
        cells = [cell for cell in json.loads(content)["cells"] if cell["cell_type"] == "code" and cell["source"]]
    except FileNotFoundError:
        return [f"{shown(path)}: no such notebook; `labs notebook` makes it"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return [f"{shown(path)}: not a notebook; it is left out"]
    files[NOTEBOOK] = content
    left = sum(cell.get("execution_count") is None for cell in cells)
    return [f"{shown(path)}: {left} of {len(cells)} cells have not run, or it has not been saved since"] * bool(left)


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
        missing.append(f"no record of {lab} in {shown(results_dir())}")
    if others := [record["run"] for record in packed if record.get("student") != student]:
        missing.append(f"{plural(len(others), 'record')} without your id, such as {others[-1]}: "
                       f"{VARIABLE} was not set when it was made")
    return missing
