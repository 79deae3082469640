"""Hand-ins: what a page has judged is packed, and what is refused of a hostile zip."""

import hashlib
import json
import os
import zipfile

import nbformat
import pytest
from nbclient import NotebookClient

from labs.cli import commands
from labs.exercises import hand_ins
from labs.results import reference
from labs.run.errors import LabError
from labs.tools.grade import judge
from tests.exercises import planted
from tests.exercises.solved import with_solutions

RECORD = json.dumps(reference.read_all("two-cores", "lab04_speedup")[0])
FILES = {"answers.json": '{"lab04.q1": {"answer": {"32": 1.5}}}', "notebook.ipynb": '\ufeff{"cells": []}',
         "records.jsonl": f"{RECORD}\n{'[' * 100_000}"}


def zipped(path, files=FILES, listed=None, method=zipfile.ZIP_DEFLATED, **fields):
    """Write a zip; its manifest lists these files, unless it lists others."""
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in (listed or files).items()}
    manifest = {"format": 2, "lab": "lab04_speedup", "student": "s1", "created": "", "files": digests} | fields
    return rezipped(path, {"manifest.json": json.dumps(manifest), **files}, method)


def rezipped(path, files: dict[str, str], method: int = zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_a_hand_in_is_read_and_a_damaged_record_is_named(tmp_path):
    hand_in = hand_ins.read(zipped(tmp_path / "one.zip"))
    assert hand_in.answers == {"lab04.q1": {"answer": {32: 1.5}}}
    assert hand_in.records == [json.loads(RECORD)]
    assert (hand_in.manifest.student, hand_in.notebook) == ("s1", {"cells": []})
    assert [problem.partition(":")[0] for problem in hand_in.damaged] == ["records.jsonl, line 2"]


REFUSED = {
    "two": (lambda path: rezipped(path, {"a/manifest.json": "", "b/manifest.json": ""}), "two files manifest.json"),
    "changed": (lambda path: zipped(path, FILES | {"answers.json": "{}"}, FILES), "is missing, or was changed"),
    "missing": (lambda path: zipped(path, {}, {"answers.json": ""}), "is missing, or was changed"),
    "outside": (lambda path: zipped(path, {"../answers.json": ""}), "Invalid enum"),
    "a student that is a formula": (lambda path: zipped(path, student="=cmd"), "matching regex"),
    "nested answers": (lambda path: zipped(path, {"answers.json": "[" * 100_000}), "recursion"),
    "an answer that is a list": (lambda path: zipped(path, {"answers.json": '{"lab04.q1": []}'}), "does not hold what"),
    "a bomb": (lambda path: zipped(path, dict.fromkeys(("answers.json", "records.jsonl"), " " * (17 << 20))),
               "larger than 32 MiB together"),
    "a million lines": (lambda path: zipped(path, {"records.jsonl": "\n" * 10**6}), "more than 1,000 lines"),
    "a bomb of bzip2": (lambda path: rezipped(path, {"a/manifest.json": "0"}, zipfile.ZIP_BZIP2),
                        "is not compressed by deflate"),
    "truncated": (lambda path: path.write_bytes(zipped(path).read_bytes()[:-30]), "not a zip file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_zip_that_is_not_a_hand_in_is_refused_in_one_line(name, tmp_path):
    write, reason = REFUSED[name]
    write(tmp_path / "one.zip")
    with pytest.raises(LabError) as problem:
        hand_ins.read(tmp_path / "one.zip")
    assert str(problem.value).isprintable()
    assert reason in str(problem.value)


CELLS = ["import os\nimport numpy as np\nfrom labs import exercises\n\nTWO, part = 2.0, 'of another cell'",
         "def excess(one, many, n):\n    return {part: np.sum([many[part]]) - one[part] / n for part in one}",
         'exercises.show({"lab04.excess": excess, "lab04.q1": {16: np.float64(1.5), 64: 2}, "lab04.q2": None})',
         "def excess(one, many, n):\n    return {k: many[k] - one[k] / TWO for k in one}\n\n"
         'exercises.show({"lab04.excess": excess})',
         "%cd -q ..\nexercises.show({'lab04.bug': {'symptom': 'it never ends', 'line': 17}})"]


@with_solutions
def test_what_a_page_has_judged_is_packed_and_what_is_missing_is_said(work, tmp_path, capsys, monkeypatch):
    planted.write(tmp_path / "results", *[record | {"student": "s1234"} for record in planted.of("lab04")])
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("LABS_STUDENT", "s1234")
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    (work / "homework.ipynb").write_text(nbformat.writes(page))
    NotebookClient(page, kernel_name="python3", resources={"metadata": {"path": str(work)}}).execute()
    (work / "lab04_speedup.ipynb").write_text("\ufeff" + nbformat.writes(page), encoding="utf-8")
    *_, judged, needs, _ = ("".join(output.get("text", "") for output in cell.outputs) for cell in page.cells)
    assert "lab04.excess: right: " in judged
    assert needs == ("lab04.excess: this cell needs `TWO`, which it does not define: define it in this cell; "
                     "not kept: the hand-in has your earlier cell\n")
    commands.dispatch(["handin", "lab04", "--output", str(tmp_path)])
    packed, out = hand_ins.read(tmp_path / "lab04_speedup-s1234.zip"), capsys.readouterr().out
    saved = {name: answer.get("cell", answer.get("answer")) for name, answer in packed.answers.items()}
    assert saved == {"lab04.q1": {16: 1.5, 64: 2}, "lab04.bug": {"symptom": "it never ends", "line": 17},
                     "lab04.excess": CELLS[1] + "\n"}, "wrong ones, too, and the text of the cell"
    assert set(packed.answers["lab04.q1"]["runs"]) <= {record["run"] for record in packed.records}
    assert packed.notebook == json.loads((work / "lab04_speedup.ipynb").read_text(encoding="utf-8-sig"))
    assert [line.partition(": ")[0].split("/")[-1] for line in out.partition("missing:\n")[2].splitlines()] == [
        "  lab04.q2", "  lab04.q3", "  lab04.q4", "  lab04.efficiency", "homework.ipynb"]
    graded = judge.judge(judge.read(tmp_path / "lab04_speedup-s1234.zip", tmp_path), judge.read_points(judge.POLICY))
    assert {verdict.exercise for verdict in graded.verdicts if verdict.status == judge.RIGHT} == {"lab04.excess"}
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "none"))
    (work / "lab04_speedup.ipynb").write_bytes((work / "homework.ipynb").read_bytes())
    os.utime(work / "lab04_speedup.ipynb", (0, 0))
    commands.dispatch(["handin", "lab04", "--output", str(tmp_path)])
    out = capsys.readouterr().out
    for missing in ("5 of 5 cells have not run", "older than your last answer; save the notebook",
                    f"no record of lab04_speedup in {tmp_path}/none"):
        assert missing in out


def test_without_an_id_nothing_is_packed(tmp_path, monkeypatch):
    for name, problem in (("Zoë, Müller", "is not an id of letters, "), ("", "is not set, ")):
        monkeypatch.setenv("LABS_STUDENT", name)
        with pytest.raises(LabError, match=rf"{problem}.*; export LABS_STUDENT=s1234"):
            commands.dispatch(["handin", "lab04", "--output", str(tmp_path)])
    assert not list(tmp_path.glob("*.zip"))
