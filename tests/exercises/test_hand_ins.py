"""Hand-ins: what a page has judged is packed, and what is refused of a hostile zip."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import zipfile

import nbformat
import pytest
from nbclient import NotebookClient

from labs.cli import commands
from labs.exercises import hand_ins
from labs.results import reference
from labs.run.errors import LabError
from labs.run.paths import ROOT
from tests.exercises import planted

RECORD = json.dumps(reference.read_all("two-cores", "lab04_speedup")[0])
FILES = {"answers.json": '{"lab04.q1": {"32": 1.5}, "lab04.q3": "compute"}', "notebook.ipynb": '\ufeff{"cells": []}',
         "functions/lab04.excess.py": "def excess(): pass\n", "records/a/record.json": RECORD}


def manifest(files: dict, **fields) -> str:
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    return json.dumps({"format": 1, "lab": "lab04_speedup", "student": "s1", "created": "", "files": digests} | fields)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lab04_speedup-s1.zip"


def zipped(path, files=FILES, listed=None, **fields):
    """Write a zip; its manifest lists these files, unless it lists others."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in {"manifest.json": manifest(listed or files, **fields), **files}.items():
            archive.writestr(name, text)
    return path


def test_a_hand_in_is_read_and_a_damaged_record_is_named(path):
    hand_in = hand_ins.read(zipped(path, FILES | {"records/b/record.json": "[" * 100_000}, runs={"lab04.q1": ["a"]}))
    assert hand_in.answers == {"lab04.q1": {32: 1.5}, "lab04.q3": "compute"}
    assert hand_in.functions == {"lab04.excess": "def excess(): pass\n"}
    assert hand_in.records == [json.loads(RECORD)]
    assert hand_in.damaged.keys() == {"records/b/record.json"}
    assert (hand_in.manifest.student, hand_in.manifest.runs, hand_in.notebook) == ("s1", {"lab04.q1": ["a"]},
                                                                                   {"cells": []})


BIG = {f"records/{number}/record.json": "0" * (30 << 20) for number in range(3)}
REFUSED = {
    "no manifest": (lambda path: path.write_bytes(rezipped({"answers.json": "{}"})), "no manifest.json"),
    "two": (lambda path: path.write_bytes(rezipped({"a/manifest.json": "", "b/manifest.json": ""})), "2 files mani"),
    "changed": (lambda path: zipped(path, FILES | {"answers.json": "{}"}, FILES), "answers.json was changed after it"),
    "missing": (lambda path: zipped(path, {}, FILES), "answers.json is missing"),
    "outside": (lambda path: zipped(path, {"../answers.json": ""}), "'../answers.json' does not belong in a hand-in"),
    "a lab that is a path": (lambda path: zipped(path, lab="a/b"), "manifest.json: "),
    "a student that is a formula": (lambda path: zipped(path, student="=cmd"), "manifest.json: "),
    "another format": (lambda path: zipped(path, format=2), "manifest.json: "),
    "nested answers": (lambda path: zipped(path, {"answers.json": "[" * 100_000}), "not JSON"),
    "answers in a list": (lambda path: zipped(path, {"answers.json": "3"}), "does not hold an object"),
    "a bomb": (lambda path: zipped(path, {"records/a/record.json": "0" * (33 << 20)}), "larger than 32 MiB"),
    "many bombs": (lambda path: zipped(path, BIG), "more than 64 MiB"),
    "a bomb of bzip2": (lambda path: path.write_bytes(rezipped({"a/manifest.json": "0"}, zipfile.ZIP_BZIP2)),
                        "is not compressed by deflate"),
    "truncated": (lambda path: path.write_bytes(zipped(path).read_bytes()[:-30]), "damaged, or not a zip"),
    "encrypted": (lambda path: path.write_bytes(encrypted(zipped(path).read_bytes())), "damaged, or not a zip"),
    "another file": (lambda path: path.write_bytes(b"Rar!"), "damaged, or not a zip"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
}


def rezipped(files: dict[str, str], method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return stream.getvalue()


def encrypted(content: bytes) -> bytes:
    changed = bytearray(content)
    for mark, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        changed[changed.index(mark) + offset] |= 1
    return bytes(changed)


@pytest.mark.parametrize("name", REFUSED)
def test_a_zip_that_is_not_a_hand_in_is_refused_in_one_line(name, path):
    write, reason = REFUSED[name]
    write(path)
    with pytest.raises(LabError) as problem:
        hand_ins.read(path)
    assert str(problem.value).isprintable()
    assert reason in str(problem.value)


CELLS = ["import os\nimport numpy as np\nfrom labs import exercises\n\nTWO, part = 2.0, 'of another cell'",
         "def excess(one, many, n):\n    return {part: np.sum([many[part]]) - one[part] / n for part in one}",
         'exercises.show({"lab04.excess": excess, "lab4.q1": {16: np.float64(1.5), 64: 2}, "lab04.q2": None})',
         "def excess(one, many, n):\n    return {k: many[k] - one[k] / TWO for k in one}\n\n"
         'exercises.show({"lab04.excess": excess})',
         "%cd -q ..\nexercises.show({'lab04.bug': {'symptom': 'it never ends', 'line': 17}})"]


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A student's folder of working copies, with lab 4's made-up records in the results folder."""
    if not (ROOT / "solutions").is_dir():
        pytest.skip("the made-up records are left out here, with solutions/")
    folder = tmp_path / "work"
    folder.mkdir()
    records = [record | {"student": "s1234"} for record in planted.of("lab04_speedup").RECORDS]
    planted.write(tmp_path / "results", *records)
    for name, value in {"WORK": folder, "RESULTS": tmp_path / "results", "STUDENT": "s1234"}.items():
        monkeypatch.setenv(f"LABS_{name}", str(value))
    return folder


def execute(folder, work, cells) -> list[str]:
    """Run a page in a kernel that starts in a folder, as JupyterLab does, and save it; return what its cells print."""
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(page, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    (work / "lab04_speedup.ipynb").write_text("\ufeff" + nbformat.writes(page), encoding="utf-8")
    return ["".join(output.get("text", "") for output in cell.outputs) for cell in page.cells]


def handed_in(capsys, folder):
    """Return what `labs handin` packs and prints."""
    commands.dispatch(["handin", "lab04", "--output", str(folder)])
    return hand_ins.read(folder / "lab04_speedup-s1234.zip"), capsys.readouterr().out


def test_what_a_page_has_judged_is_packed_and_a_cell_that_needs_another_is_not(work, tmp_path, capsys):
    *_, judged, needs, moved = execute(work, work, CELLS)
    assert "lab04.excess: right: " in judged
    assert needs == ("lab04.excess: this cell needs `TWO`, which it does not define: define it in this cell; "
                     "not kept: the hand-in has your earlier cell\n")
    assert "not kept" not in judged + moved
    hand_in, out = handed_in(capsys, tmp_path)
    bug = {"symptom": "it never ends", "line": 17}
    assert hand_in.answers == {"lab04.q1": {16: 1.5, 64: 2}, "lab04.bug": bug}, "wrong ones, too"
    runs = [record["run"] for record in planted.of("lab04_speedup").RECORDS]
    assert set(hand_in.manifest.runs["lab04.q1"]) <= {*runs} == {record["run"] for record in hand_in.records}
    assert hand_in.notebook == json.loads((work / "lab04_speedup.ipynb").read_text(encoding="utf-8-sig"))
    assert hand_in.functions == {"lab04.excess": CELLS[1] + "\n"}, "the text of the cell"
    assert "lab04.q2: no answer" in out
    assert "lab04.q1: {16: 1.5, 64: 2}" in out
    assert "s1234" in out.splitlines()[0]
    assert not re.search("have not run|without your id|older than|not packed|LABS_STUDENT", out)


def test_what_is_missing_is_said(work, tmp_path, capsys, monkeypatch):
    said = execute(tmp_path, work, CELLS[:3])[2]
    assert re.search(r"lab04.q1: not saved for the hand-in: this notebook is in .*\. Open the copy in .*work", said)
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    for name in ("lab04_speedup", "homework", "lab05_allreduce"):
        nbformat.write(nbformat.v4.new_notebook(cells=cells), work / f"{name}.ipynb")
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "none"))
    hand_in, out = handed_in(capsys, tmp_path)
    assert (hand_in.answers, hand_in.functions, hand_in.records) == ({}, {}, [])
    assert "5 of 5 cells have not run" in out
    assert "homework.ipynb: a notebook of lab04_speedup that is not packed" in " ".join(out.split())
    assert "lab05" not in out
    assert f"no record of lab04_speedup in {tmp_path}/none" in out
    monkeypatch.chdir(work)
    monkeypatch.setenv("LABS_STUDENT", "s1")
    hand_ins.exercises.show({"lab04.bug": {"symptom": "it never ends", "line": 17}})
    os.utime(work / "lab04_speedup.ipynb", (0, 0))
    monkeypatch.setenv("LABS_STUDENT", "s1234")
    out = " ".join(handed_in(capsys, tmp_path)[1].split())
    assert "lab04.bug: LABS_STUDENT was not s1234 when its cell ran; run it again" in out
    assert "older than your last answer; save the notebook" in out
    (work / "lab04_speedup.ipynb").unlink()
    assert "no such notebook; `labs notebook` makes it" in handed_in(capsys, tmp_path)[1]


def test_without_an_id_nothing_is_packed(work, tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_STUDENT", "Zoë, Müller")
    with pytest.raises(LabError, match=r"is not an id of letters, .*; export LABS_STUDENT=s1234"):
        commands.dispatch(["handin", "lab04", "--output", str(tmp_path)])
    monkeypatch.delenv("LABS_STUDENT")
    with pytest.raises(LabError, match=r"LABS_STUDENT is not set, .*; export LABS_STUDENT=s1234"):
        commands.dispatch(["handin", "lab04", "--output", str(tmp_path)])
    assert not list(tmp_path.glob("*.zip"))


def test_ctrl_c_ends_a_check_and_the_function(work):
    """The kernel's interrupt, while a function runs."""
    program = ("import os\nfrom labs import exercises\nfrom tests.exercises import planted\n"
               "rest = planted.cell('import os\\ndef rest(*args):\\n    os.kill(PARENT, 2)\\n    while True: pass\\n'"
               ".replace('PARENT', str(os.getpid())))['rest']\n"
               "try:\n    exercises.check('lab12.rest', rest)\nexcept KeyboardInterrupt:\n    print('interrupted')\n")
    done = subprocess.run([sys.executable, "-c", program], cwd=work, capture_output=True, text=True, check=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=60)
    assert done.stdout == "interrupted\n"
    assert not (work / "answers").exists()
