"""Hand-ins: what is read from a good zip, and which hostile zips are refused, with their reason."""

from __future__ import annotations

import hashlib
import json
import re
import stat
import struct
import subprocess
import sys
import zipfile

import nbformat
import pytest
from nbclient import NotebookClient

from labs.cli import commands
from labs.course import hand_ins
from labs.results import reference
from labs.run.errors import LabError
from tests.course.exercises import planted
from tests.course.exercises.solved import with_solutions

RECORD = next(iter(reference.FOLDER.glob("two-cores/lab04_speedup/*/record.json"))).read_text()
FILES = {"answers.json": '{"lab04.q1": {"32": 1.5}, "lab04.q3": "compute"}', "notebook.ipynb": '{"cells": []}',
         "functions/lab04.excess.py": "def excess(): pass\n", "records/a/record.json": RECORD}


def manifest(files: dict, **fields) -> str:
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    return json.dumps({"format": 1, "lab": "lab04_speedup", "student": "s1", "created": "", "files": digests} | fields)


def zipped(path, files=FILES, more=(), **fields):
    """Write a zip with a manifest of `files`, and more members that the manifest does not know."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", manifest(files, **fields))
        for name, text in (*files.items(), *more):
            archive.writestr(name, text)
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lab04_speedup-s1.zip"


def refused(path) -> str:
    with pytest.raises(LabError) as problem:
        hand_ins.read(path)
    line = str(problem.value)
    assert line.isprintable(), "one line, safe for a terminal"
    return line.removeprefix(f"{path}: ")


def test_a_hand_in_is_read(path):
    hand_in = hand_ins.read(zipped(path, runs={"lab04.q1": ["a"]}))
    assert hand_in.answers == {"lab04.q1": {32: 1.5}, "lab04.q3": "compute"}
    assert hand_in.functions == {"lab04.excess": "def excess(): pass\n"}
    assert hand_in.records == [json.loads(RECORD)]
    assert (hand_in.manifest.student, hand_in.manifest.runs, hand_in.notebook) == ("s1", {"lab04.q1": ["a"]},
                                                                                   {"cells": []})


def test_a_damaged_record_is_named_and_the_others_are_read(path):
    hand_in = hand_ins.read(zipped(path, FILES | {"records/b/record.json": "[" * 100_000,
                                                  "records/c/record.json": '{"format": 1}'}))
    assert len(hand_in.records) == 1
    assert hand_in.damaged.keys() == {"records/b/record.json", "records/c/record.json"}


@pytest.mark.parametrize("name", [
    "../answers.json", "functions/../../x.py", "/etc/passwd", "C:\\x.py", "functions\\x.py", "lab04/answers.json",
    "functions/nul.py", "records/CON.d/record.json", "functions/a\x1b[2J.py", "functions/", "functions/.x.py",
    "records/a/record.json.exe", "__MACOSX/._answers.json", "functions/é.py", "functions/" + 200 * "a" + ".py"])
def test_a_file_that_does_not_belong_into_a_hand_in_is_refused(path, name):
    line = refused(zipped(path, more=[(name, "")]))
    assert re.search("does not belong in a hand-in|is a link, a folder", line)


def patched(path, old: bytes, new: bytes):
    """Replace bytes of a zip, as an attacker would, where `zipfile` writes no such thing."""
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    return path


def test_a_name_with_nul_is_refused(path):
    zipped(path, more=[("functions/x.py+exe", "")])
    assert "does not belong" in refused(patched(path, b"functions/x.py+exe", b"functions/x.py\0exe"))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFDIR, stat.S_IFCHR])
def test_a_link_or_a_device_is_refused(path, kind):
    member = zipfile.ZipInfo("functions/x.py")
    member.external_attr = (kind | 0o777) << 16
    assert "is a link, a folder or a device" in refused(zipped(path, more=[(member, "/etc/passwd")]))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["answers.json", "functions/LAB04.excess.py"])
def test_a_file_that_is_there_twice_is_refused(path, name):
    assert refused(zipped(path, more=[(name, "{}")])).endswith("appears twice")


def test_an_encrypted_file_is_refused(path):
    content = bytearray(zipped(path).read_bytes())
    for mark, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.rindex(mark) + offset] |= 1
    path.write_bytes(content)
    assert refused(path).endswith("is encrypted")


def test_bombs_are_refused_before_they_are_decompressed(path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZipExtFile", None)
    small, large = "0" * (9 << 20), "0" * (33 << 20)
    assert "a zip of" in refused(zipped(path, more=[("functions/x.py", small)]))
    assert "larger than 32 MiB" in refused(zipped(path, more=[("functions/x.py", large)]))
    third = "0" * (30 << 20)
    assert "400 files or 64 MiB" in refused(zipped(path, more=[(f"functions/{n}.py", third) for n in range(3)]))
    assert "more than 400 files" in refused(zipped(path, more=[(f"functions/{n}.py", "") for n in range(400)]))


def test_a_bomb_whose_size_is_a_lie_is_refused(path):
    zipped(path, more=[("functions/x.py", "0" * (9 << 20))])
    assert refused(patched(path, struct.pack("<I", 9 << 20), struct.pack("<I", 100))).startswith("damaged")


def test_a_million_names_are_refused_before_they_are_parsed(path, monkeypatch):
    zipped(path)
    content = bytearray(path.read_bytes())
    content[-14:-6] = struct.pack("<HHI", 3, 3, 30 << 20)
    path.write_bytes(content)
    monkeypatch.setattr(zipfile, "ZipFile", None)
    assert "more than 400 files" in refused(path)


@pytest.mark.parametrize("patches", [{6: 99}, {8: 0x20}, {9: 0x08, 46: 0xff}, {-8: 1}],
                         ids=["a later version", "patched data", "a name that is not UTF-8", "a negative offset"])
def test_what_zipfile_refuses_is_refused(path, patches):
    content = bytearray(zipped(path).read_bytes())
    last = content.rindex(b"PK\1\2")  # The last file in the central directory.
    for offset, value in patches.items():
        content[last + offset if offset >= 0 else offset] = value
    path.write_bytes(content)
    assert refused(path).startswith("damaged or not a zip: ")


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.99, -1])
def test_a_truncated_zip_is_refused(path, keep):
    content = zipped(path).read_bytes()
    path.write_bytes(content[:int(keep * len(content)) if isinstance(keep, float) else keep])
    assert refused(path).startswith("incomplete, or not a zip")


def test_a_zip64_or_a_method_other_than_deflate_is_refused(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("answers.json", "{}")
    assert "unusual method" in refused(path)
    path.write_bytes(b"PK\6\7" + bytes(16) + b"PK\5\6" + bytes(18))
    assert refused(path).startswith("incomplete, or not a zip")


def test_a_changed_missing_or_unlisted_file_is_refused(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("answers.json", "{}")
    assert refused(path).startswith("no manifest.json")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("manifest.json", manifest({"answers.json": '{"lab04.q1": 2}'}))
    assert refused(path).startswith("answers.json was changed after it was packed")
    assert "differ in 'functions/x.py'" in refused(zipped(path, more=[("functions/x.py", "")]))


@pytest.mark.parametrize("fields", [{"student": "../x"}, {"student": "=cmd"}, {"student": "a\n"}, {"lab": "a/b"},
                                    {"format": 2}, {"missing": [1]}, {"runs": 3}])
def test_a_manifest_that_is_none_is_refused(path, fields):
    assert refused(zipped(path, **fields)).startswith("manifest.json: ")


def test_answers_that_are_not_json_are_refused(path):
    assert "not JSON" in refused(zipped(path, {"answers.json": "[" * 100_000}))
    assert "does not hold an object" in refused(zipped(path, {"answers.json": "3"}))


def test_what_is_not_a_regular_file_is_refused(path):
    path.symlink_to("/dev/zero")
    assert "not a regular file" in refused(path)


CELLS = ["import functools\nimport numpy as np\nfrom labs.course import exercises",
         "TWO = 2.0\n\n@functools.cache\ndef half():\n    return 1 / TWO\n\n"
         "def mean(values):\n    return np.mean(values) * half() * TWO",
         "def excess(one, many, n):\n    return {name: mean([many[name]]) - one[name] / n for name in one}",
         'exercises.show({"lab04.excess": excess, "lab4.q1": {16: np.float64(1.5), 64: 2}, "lab04.q2": None})',
         'exercises.show({"lab04.bug": {"symptom": "it never ends", "line": 17}})']


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A student's folder of working copies, with lab 4's made-up records in the results folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    records = [record | {"student": "s1234"} for record in planted.of("lab04_speedup").RECORDS]
    planted.write(tmp_path / "results", *records)
    for name, value in {"WORK": folder, "RESULTS": tmp_path / "results", "STUDENT": "s1234"}.items():
        monkeypatch.setenv(f"LABS_{name}", str(value))
    return folder


def execute(work, cells) -> None:
    """Run a page in a kernel that starts in the folder of working copies, as JupyterLab does, and save it."""
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(page, kernel_name="python3", resources={"metadata": {"path": str(work)}}).execute()
    nbformat.write(page, work / "lab04_speedup.ipynb")


def handed_in(capsys, folder):
    """Return what `labs handin` packs and prints."""
    commands.dispatch(["handin", "lab04", "--output", str(folder)])
    return hand_ins.read(folder / "lab04_speedup-s1234.zip"), capsys.readouterr().out


@with_solutions
def test_what_a_page_has_judged_is_packed(work, tmp_path, capsys):
    execute(work, CELLS)
    hand_in, out = handed_in(capsys, tmp_path)
    bug = {"symptom": "it never ends", "line": 17}
    assert hand_in.answers == {"lab04.q1": {16: 1.5, 64: 2}, "lab04.bug": bug}, "wrong ones, too"
    runs = [record["run"] for record in planted.of("lab04_speedup").RECORDS]
    assert hand_in.manifest.runs == {"lab04.q1": hand_in.manifest.runs["lab04.q1"]}
    assert set(hand_in.manifest.runs["lab04.q1"]) <= {*runs} == {record["run"] for record in hand_in.records}
    assert hand_in.notebook == json.loads((work / "lab04_speedup.ipynb").read_text())
    program = hand_in.functions["lab04.excess"] + "print(float(excess({'wall': 2}, {'wall': 3}, 2)['wall']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "2.0\n", "it runs without the page"
    assert "lab04.q2: no answer" in out
    assert "lab04.q1: {16: 1.5, 64: 2}" in out
    assert "s1234" in out.splitlines()[0]
    assert not any("have not run" in line or "without your id" in line for line in hand_in.manifest.missing)


@with_solutions
def test_a_page_that_never_ran_is_packed_with_what_is_missing(work, tmp_path, capsys, monkeypatch):
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), work / "lab04_speedup.ipynb")
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "none"))
    hand_in, out = handed_in(capsys, tmp_path)
    assert (hand_in.answers, hand_in.functions, hand_in.records) == ({}, {}, [])
    assert "5 of 5 cells have not run" in out
    assert f"no record of lab04_speedup in {tmp_path}/none" in out
    (work / "lab04_speedup.ipynb").unlink()
    assert "no such notebook; `labs notebook` makes it" in handed_in(capsys, tmp_path)[1]


@with_solutions
def test_only_a_working_copy_keeps_answers(work, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hand_ins.exercises.show({"lab04.q1": 3})
    assert not (work / "answers").exists()
    monkeypatch.chdir(work)
    hand_ins.exercises.show({"lab04.q1": 3})
    assert hand_ins.exercises.kept.load("lab04.q1")["answer"] == 3


@with_solutions
def test_without_an_id_nothing_is_packed(work, tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_STUDENT", "Zoë, Müller")
    with pytest.raises(LabError, match=r"is not an id of letters, .*; export LABS_STUDENT=s1234"):
        commands.dispatch(["handin", "lab04", "--output", str(tmp_path)])
    monkeypatch.delenv("LABS_STUDENT")
    with pytest.raises(LabError, match=r"LABS_STUDENT is not set, .*; export LABS_STUDENT=s1234"):
        commands.dispatch(["handin", "lab04", "--output", str(tmp_path)])
    assert not list(tmp_path.glob("*.zip"))
