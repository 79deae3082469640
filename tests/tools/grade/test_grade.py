"""`labs grade`: a class of hand-ins, right, wrong, copied, hostile, damaged and packed again."""

import csv
import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from labs import exercises
from labs.exercises import hand_ins
from labs.run import catalogue
from labs.run.environment import personal_seed
from labs.run.paths import ROOT
from labs.tools.grade import command, judge
from tests.exercises.solved import with_solutions
from tests.tools.grade import packed

pytestmark = with_solutions
POINTS = judge.read_points(judge.POLICY)
WORDS = "**1.** The baseline of each batch size is one worker.\n\n<b>2.</b>\n2. Weak scaling, because ..."
ALONE = """def excess(one, many, n):
    'Of the exercises.'
    {0}s = dict()
    for {0} in one:
        share = one[{0}] / n
        {0}s[{0}] = many[{0}] - share
    return {0}s
"""
SHORT = "def excess(one, many, n):\n    return {k: many[k] - one[k] / n for k in one}\n"
EVIL = """
import os
def excess(one, many, n):
    for descriptor in range(3, 10):
        try:
            os.write(descriptor, b'{"value": "right", "args": []}\\n[]')
        except OSError:
            pass
    os._exit(0)
"""


def grade(folder):
    printed = subprocess.run([sys.executable, "-m", "labs", "grade", folder], cwd=ROOT, stdout=subprocess.PIPE,
                             text=True, check=True).stdout
    with open(folder / "graded/grades.csv", newline="") as file:
        return printed, list(csv.DictReader(file))


def rezip(path, source, prefix: str, *more: str) -> None:
    """Pack a hand-in again: in a folder, with its separator, beside other files."""
    with zipfile.ZipFile(path, "w") as archive, zipfile.ZipFile(source) as old:
        for name in more:
            archive.writestr(name, b"")
        for name in old.namelist():
            archive.writestr(prefix + name, old.read(name))


@pytest.fixture(scope="module")
def a_class(tmp_path_factory):
    """Grade a class; return what was printed, the rows by student, and the folder."""
    folder, made = (tmp_path_factory.mktemp(name) for name in ("hand-ins", "made"))
    packed.write(folder, "right", words=WORDS, cell=ALONE.format("k"))
    packed.write(folder, "wrong", answers={"lab04.q1": {"answer": {64: 0.1, 16: 0.2}}, "lab04.q3": {"answer": None},
                                           "lab04.q2": {"answer": 10.0}},
                 cell="def excess(one, many, n):\n    return {e: many[e] - one[e] for e in one}")
    runs = [record | {"run": f"mine\n\n## Cheating\n\n- <img src=x> wrong {record['run']}"}
            for record in packed.measured("copied")]
    packed.write(folder, "copied", runs=runs, cell=ALONE.format("key"))
    packed.write(folder, "hostile", cell=EVIL)
    (folder / "notes.txt").write_text("not a hand-in")
    for attempt in ("Ann", "first", "second"):
        (folder / attempt).mkdir()
    for name in ("tar.tar.gz", "lab04_speedup-broken.zip", "Ann/=cmd.zip", "Ann/answers.rar"):
        (folder / name).write_bytes(b"PK\3\4 no more")
    for attempt in ("first", "second"):
        packed.write(folder / attempt, "twice")
    # Each form in which one may come back.
    shutil.copy(packed.write(made, "upper"), folder / "UPPER.ZIP")
    shutil.unpack_archive(packed.write(made, "folder"), folder / "Ann 12/lab04_speedup-folder")
    rezip(folder / "mac.zip", packed.write(made, "mac"), "my/", "__MACOSX/my/._manifest.json", "my/.DS_Store")
    rezip(folder / "windows.zip", packed.write(made, "windows"), "my\\")
    printed, rows = grade(folder)
    return printed, {row["file"] if row["problem"] else row["student"]: row for row in rows}, folder


def feedback(folder, student: str) -> str:
    return (folder / f"graded/feedback/lab04_speedup-{student}.md").read_text()


def test_right_hand_ins_have_all_points_however_they_were_packed_again(a_class):
    _, rows, folder = a_class
    for student in ("right", "upper", "folder", "mac", "windows"):
        row = rows[student]
        assert (row["points"], row["of"], row["wrong"], row["problem"]) == ("15", "15", "0", "")
    assert feedback(folder, "right").count(": right (") == 7
    assert "explain" not in feedback(folder, "right")
    assert int(rows["right"]["copies"]) > 0
    assert "copied" not in feedback(folder, "right"), "whom it was copied from is for the instructor"
    text = (folder / "graded/open-answers/lab04_speedup.md").read_text()
    assert "## right\n\n- \\*\\*1.\\*\\* The baseline of each" in text
    assert "&lt;b&gt;" in text


def test_a_wrong_one_has_hints_and_no_solution_and_one_that_forges_its_answer_no_points(a_class):
    _, rows, folder = a_class
    row = rows["wrong"]
    assert (row["points"], row["of"], row["right"], row["wrong"], row["no_answer"]) == ("6", "15", "3", "3", "1")
    text = feedback(folder, "wrong")
    assert "takes exactly its ideal time" in text
    assert "ormula" not in text.partition("lab04.q4")[0]
    assert (rows["hostile"]["points"], rows["hostile"]["wrong"]) == ("12", "1")
    page = (folder / "graded/class.md").read_text()
    assert "- copied, right: functions that are equal but for names and comments; 1 in all" in page
    assert "## Cheating" not in page.splitlines()
    assert not any(line.startswith("- <") or "<img" in line.replace("\\<img", "") for line in page.splitlines())


def test_whatever_is_not_graded_is_named_and_counted(a_class):
    printed, rows, folder = a_class
    assert printed.startswith("13 hand-ins, 5 not graded; 2 other files; ")
    for name in ("lab04_speedup-broken.zip", "tar.tar.gz", "Ann/=cmd.zip"):
        assert "not a zip file; hand in the zip as" in rows[name]["problem"]
    assert "- Ann/answers.rar\n" in (folder / "graded/class.md").read_text().partition("## Files that are not")[2]
    for attempt in ("first", "second"):
        row = rows[f"{attempt}/lab04_speedup-twice.zip"]
        assert (row["student"], row["points"]) == ("twice", "")
        assert "first/lab04_speedup-twice.zip, second/lab04_speedup-twice.zip" in row["problem"]


@pytest.mark.parametrize("lab", catalogue.lab_names())
def test_open_answers_are_the_student_s_lines_only(lab, tmp_path):
    page = json.loads((ROOT / f"notebooks/{lab}.ipynb").read_text())
    for cell in page["cells"]:
        cell["source"] = "".join(cell["source"]).replace("](../", "](kit/")  # As in a working copy elsewhere.
    page["cells"][0]["source"] += "\nbecause it has more\n"
    graded = judge_zip(packed.write(tmp_path, "s1", lab, runs=[], notebook=page))
    assert graded.open_answers == ["because it has more"]
    assert judge_zip(packed.write(tmp_path, "s1", lab, runs=[], notebook={"cells": 3})).problem


def judge_zip(path):
    return judge.judge(judge.read(path, path.parent), POINTS)


NO_FUNCTIONS = {"lab04.excess": {}, "lab04.efficiency": {}}


def test_a_later_run_does_not_make_an_answer_wrong(tmp_path):
    runs, question = packed.measured("s1"), exercises.entries("lab04")["lab04.q4"]
    right = packed.solved("lab04", runs)["lab04.q4"]
    metrics = runs[-1]["metrics"] | {"ledger_communication_seconds": 0.1}
    later = packed.signed(runs[-1] | {"run": "later", "started": "2026-11-24T10:00:00+0000", "metrics": metrics}, "s1")
    used = [run["run"] for run in question.select_runs(runs)]
    for runs_of_answer, status in ((used, judge.RIGHT), ([], judge.WRONG), (["gone"], judge.WRONG), (3, judge.WRONG)):
        answers = NO_FUNCTIONS | {"lab04.q4": right | {"runs": runs_of_answer}}
        each = judge_zip(packed.write(tmp_path, "s1", runs=[*runs, later], answers=answers))
        assert {verdict.exercise: verdict.status for verdict in each.verdicts}["lab04.q4"] == status


@pytest.mark.parametrize("text", ["[points]\nquestion = 2\nfunction = 3", "[points]\nquestions = 2", "[late2]",
                                  "[points]\nquestion = -1\nfunction = 3\nbug = 1"])
def test_a_policy_with_a_misspelt_or_missing_key_is_refused(text, tmp_path):
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(judge.LabError, match=r"policy\.toml: .*; see "):
        judge.read_points(tmp_path / "policy.toml")


@pytest.mark.parametrize(("cell", "status"), [
    (SHORT.replace("    return", "    import no_such\n    return"), judge.BY_HAND),
    ("def excess(one, many, n:", judge.WRONG), ("def excess(one, many, n): pass", judge.WRONG),
    ("def excess(one, many, n):\n    import labs\n", judge.WRONG),
    ("def excess(one, many, n):\n    import solutions.lab04_speedup\n", judge.WRONG)])
def test_a_cell_that_answers_nothing_is_wrong_but_for_a_package_which_is_not_installed(cell, status, tmp_path):
    (verdict,) = [each for each in judge_zip(packed.write(tmp_path, "s1", cell=cell, only=True)).verdicts
                  if each.exercise == "lab04.excess"]
    assert (verdict.status, verdict.of) == (status, 3)


def test_files_beside_the_hand_ins_hide_none_and_links_are_not_read(tmp_path):
    with zipfile.ZipFile(packed.write(tmp_path, "s1")) as archive:
        archive.extractall(tmp_path / "s1")
    (tmp_path / "thief").mkdir()
    for name in os.listdir(tmp_path / "s1"):
        (tmp_path / "thief" / name).symlink_to(tmp_path / "s1" / name)
    (tmp_path / "manifest.json").touch()
    paths, others = command.find(tmp_path, tmp_path / "graded")
    assert {path.name for path in paths} >= {"s1", "thief"}
    assert "manifest.json" in others
    assert "no manifest.json" in judge.read(tmp_path / "thief", tmp_path).problem


def test_odd_records_and_a_cell_that_names_the_grader_are_named(tmp_path):
    assert not judge_zip(packed.write(tmp_path, "s1", answers=NO_FUNCTIONS)).findings
    runs = packed.measured("s1")
    runs[0]["metrics"]["test_accuracy"] = 0.99
    del runs[1]["digest"]
    runs[2] = packed.signed(runs[2], "s2")
    runs[3] = packed.signed(runs[3] | {"started": "2026-11-25T12:10:00"}, "s1")
    cell = "import importlib\nx = importlib.import_module('labs.exercises.lab10_caltech')\n"
    lines = judge_zip(packed.write(tmp_path, "s1", runs=runs, cell=cell, only=True)).findings
    for run, words in zip(runs, ("changed after the run", "no digest", "a run of 's2', handed in by s1",
                                 "not before the hand-in was packed"), strict=True):
        assert [line.partition(": ")[0][-len(run["run"]):] for line in lines if words in line] == [run["run"]]
    assert any("lab04.excess mentions labs.exercises.lab10_caltech" in line for line in lines)
    for created in ("2126-01-01T00:00:00Z", "yesterday"):
        each = judge_zip(packed.write(tmp_path, "s1", created=created, only=True))
        assert any("is in the future or unknown" in line for line in each.findings)


def trained(student: str, seed: int) -> list[dict]:
    """Return a student's records with losses."""
    runs = packed.measured(student)
    for run in runs:
        run["config"]["seed"] = seed
        for row in run["history"]:
            row |= {"loss": 1.2345678 / row["epoch"]}
    return [packed.signed(run, student) for run in runs]


OWN = personal_seed("s1")


@pytest.mark.parametrize(("seeds", "cells", "reason"), [
    ((1, 1), (ALONE.format("e"), SHORT), ""),  # A run of the page, which all have.
    ((OWN, OWN), (SHORT, SHORT), "s1, s2: equal seeds; 1 in all, such as lab04_speedup/"),
    ((OWN, 5000), (SHORT, SHORT), "s1, s2: equal losses in all epochs; "),
    ((1, 1), (ALONE.format("e"), "import math\n" + ALONE.format("k").replace("Of the", "My")),
     "s1, s2: functions that are equal but for names"),
    ((1, 1), (ALONE.format("e"), ALONE.format("k").replace("- share", "+ share")), ""),
    ((1, 1), (SHORT, SHORT), ""),
])
def test_what_two_students_share_is_shown_and_what_all_have_is_not(seeds, cells, reason, tmp_path):
    read = [hand_ins.read(packed.write(tmp_path, student, only=True, cell=cell, runs=trained(student, seed)))
            for student, seed, cell in zip(("s1", "s2"), seeds, cells, strict=True)]
    lines = [line for _, line in judge.find_copies(read)]
    assert any(line.startswith(reason) for line in lines) if reason else not lines, lines
    assert len(lines) == len({line.partition(";")[0] for line in lines}), "one for all runs"
