"""Graded questions: right answers pass, wrong ones get a hint, and neither needs the solutions."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest

from labs import exercises, lab10_caltech
from labs.exercises import grading
from labs.run import catalogue, command_line, options
from labs.run.errors import LabError
from labs.run.paths import ROOT
from tests.exercises import planted
from tests.exercises.solved import solution, solved, with_solutions

LABS = catalogue.lab_names()


def questions(lab: str) -> dict[str, grading.Question]:
    return {name: entry for name, entry in exercises.entries(lab).items() if isinstance(entry, grading.Question)}


QUESTIONS = [question for lab in LABS for question in questions(lab)]


@pytest.fixture(scope="module")
def results_root(tmp_path_factory):
    return planted.write(tmp_path_factory.mktemp("results"), *planted.all_labs())


@with_solutions
@pytest.mark.parametrize("question", QUESTIONS)
def test_grader_and_solution_agree(question, results_root, capsys):
    exercises.check(question, solution(question)(exercises.runs(question, results_root)), results_root)
    assert capsys.readouterr().out.startswith(f"{question}: right: ")


WRONG = [(f"{lab[:5]}.{number}", answer, hint) for lab in LABS for number, answer, hint in planted.of(lab).WRONG]


@with_solutions
@pytest.mark.parametrize(("question", "answer", "hint"), WRONG)
def test_a_mistake_is_named_and_the_figure_is_not(question, answer, hint, results_root):
    runs = exercises.runs(question, results_root)
    right = solution(question)(runs)
    given = answer(runs, right)
    with pytest.raises(AssertionError, match=hint) as wrong:
        exercises.check(question, given, results_root)
    text = str(wrong.value)
    assert text.startswith(f"{question}: ")
    assert all(f"{run['lab']}/{run['run']}" in text for run in runs)
    rest = text.replace(f"{given:.6g}", "") if isinstance(given, int | float) else text
    if isinstance(right, float) and not float(right).is_integer():
        assert not any(math.isclose(float(number), right, rel_tol=0.004) for number in re.findall(r"\d+\.\d+", rest))


def test_every_question_has_a_typical_mistake():
    assert {question for question, *_ in WRONG} == set(QUESTIONS)


@pytest.mark.parametrize("question", QUESTIONS)
def test_whatever_is_answered_a_grader_gets_an_assertion(question, results_root):
    for answer in (None, "a lot", True, {}, [None], float("nan"), 10**400, object()):
        with pytest.raises(AssertionError, match=rf"^{question}: "):
            exercises.check(question, answer, results_root)


def test_a_record_that_lacks_a_figure_is_named(tmp_path):
    one, many = planted.made("lab02"), planted.made("lab02", 4)
    del many["timings"]["total_seconds"]
    planted.write(tmp_path, one, many)
    with pytest.raises(AssertionError, match=rf"cannot be graded from .*lab02_horovod/{many['run']}: KeyError"):
        exercises.check("lab02.q1", 1, tmp_path)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_run_that_is_not_there_is_named_with_what_makes_it(question, tmp_path):
    with pytest.raises(AssertionError, match=rf"{question}: no record yet of .*; .+ makes it") as missing:
        exercises.check(question, 1, tmp_path)
    source = re.search(r"; (`labs (?P<words>.*)`|section '(?P<section>.*)' of (?P<notebook>\S+)) makes it$",
                       str(missing.value))
    if source["section"]:
        assert f'"## {source["section"]}\\n"' in (ROOT / source["notebook"]).read_text()
        return
    action, lab, *rest = shlex.split(source["words"])
    if action == "run":
        command_line.parse(catalogue.load_lab(lab), rest[2:] if rest[:1] == ["--workers"] else rest)
    else:
        assert action == "sweep"
        named = [sweep.name for sweep in catalogue.load_lab(lab).sweeps["demo"]]
        assert set(rest) <= {"--only", *named}


def test_a_question_may_be_named_by_a_short_lab_name_and_an_unknown_one_is_refused_in_one_line(results_root):
    assert exercises.runs("lab4.q1", results_root) == exercises.runs("lab04.q1", results_root)
    with pytest.raises(LabError, match=r"^unknown question '.*'; there are: lab04\.q1, .*q4, .*lab04\.bug$"):
        exercises.check("lab04.q9", 1)
    with pytest.raises(LabError, match=r"^unknown lab 'lab77'"):
        exercises.check("lab77.q1", 1)


def test_numbers_of_numpy_are_numbers_and_near_is_right(results_root):
    for answer in (2.3, 2.31, np.float32(2.3)):
        exercises.check("lab02.q1", answer, results_root)


@with_solutions
def test_an_answer_is_judged_as_labs_grade_reads_it(results_root):
    """Its keys have become text in JSON, and numbers again."""
    right = solution("lab04.q1")(exercises.runs("lab04.q1", results_root))
    for key in (str, int, np.int64):
        exercises.check("lab04.q1", {key(batch): np.float64(value) for batch, value in right.items()}, results_root)


def test_show_tells_all_of_them(results_root, capsys):
    exercises.show({"lab02.q1": 2.3, "lab02.q2": None, "lab02.q3": 31.25, "lab06.q2": 1}, results_root)
    output = capsys.readouterr().out
    judged = [line.partition(" ")[0] for line in output.splitlines() if re.match("lab(?!.*: not saved)", line)]
    assert judged == ["lab02.q1:", "lab02.q2:", "lab02.q3:", "lab06.q2:"]
    assert "lab02.q2: no answer yet" in output


def test_a_real_run_of_lab_10_is_graded(tmp_path):
    """The real runs of the other labs are graded where they are made, in tests/labs."""
    lab10_caltech.run(lab10_caltech.Config(epochs=2), options.Options(results=tmp_path))
    solved(*questions("lab10"), results_root=tmp_path)


# Which runs.

def test_runs_of_lab_01_are_compared_on_the_same_images(tmp_path):
    full = [planted.made("lab01", images=1024, batch_size=size) for size in (128, 8)]
    padded = [planted.made("lab01", batch_size=size) for size in (128, 1024)]
    again = planted.made("lab01", images=1024, batch_size=128)
    for written, compared in (((*full, padded[0]), full[::-1]), (padded[1:], padded), ((again,), [full[1], again])):
        planted.write(tmp_path, *written)
        assert [run["run"] for run in exercises.runs("lab01.q3", tmp_path)] == [run["run"] for run in compared]


def pair(*runs, **how) -> list[str]:
    return [run["run"] for run in grading.pair_with_one_worker("nothing", **how)(runs)]


def test_runs_are_compared_with_one_worker_of_the_same_settings():
    one, other = planted.made("lab02"), planted.made("lab02", base_lr=0.1)
    slow = planted.made("lab02", layout={"threads": 2})
    many, again = planted.made("lab02", 4, seed=2), planted.made("lab02", 4)
    assert pair(one, other, slow, many) == [one["run"], many["run"]]
    assert pair(one, many, again)[1] == again["run"], "the newest"
    with pytest.raises(AssertionError, match="no record yet of one worker and of several with the same"):
        pair(other, slow, many)
    on_gpus = planted.made("lab02", 4, layout={"gpus": 4})
    assert pair(slow, on_gpus)[0] == slow["run"], "threads do not matter there"


def test_strong_scaling_is_compared_at_the_same_global_batch():
    one, small = planted.made("lab04", batch_size=64), planted.made("lab04", batch_size=16)
    many = planted.made("lab04", 4, batch_size=16)
    assert pair(one, small, many)[0] == small["run"]
    assert pair(one, small, many, strong=True)[0] == one["run"]


# The notebooks, the command, and a clone without solutions.

@pytest.mark.parametrize("lab", LABS)
def test_a_notebook_ends_with_its_questions(lab):
    asked = questions(lab)
    assert 2 <= len(asked) <= 4
    cells = json.loads((ROOT / f"notebooks/{lab}.ipynb").read_text())["cells"]
    markdown, code = cells[-2:]
    text = "".join(markdown["source"])
    assert f'`exercises.runs("{next(iter(asked))}")` returns their records' in text
    lines = [f"* **{name}** {entry.text} *Answer: {entry.answer}.*" for name, entry in asked.items()]
    assert text.endswith("\n\n" + "\n".join(lines))
    names = re.findall(r'"(lab\d\d\.q\d)": None', "".join(code["source"]))
    assert names == list(asked)
    assert "".join(code["outputs"][0]["text"]) == "".join(f"{name}: no answer yet\n" for name in names)


def test_without_the_solutions_and_without_tensorflow(tmp_path, results_root):
    shutil.copytree(ROOT / "labs", tmp_path / "labs", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "try.py").write_text(
        "import sys\nfrom labs import exercises\nfrom labs.run import catalogue\n"
        "exercises.check('lab02.q1', 2.3)\n"
        "for lab in catalogue.lab_names():\n"
        "    [exercises.runs(name) for name in exercises.entries(lab) if '.q' in name]\n"
        "assert 'tensorflow' not in sys.modules\n")
    environment = {"LABS_RESULTS": str(results_root), "PYTHONPATH": str(tmp_path), "PATH": ""}
    done = subprocess.run([sys.executable, "try.py"], cwd=tmp_path, env=environment, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert "lab02.q1: right: " in done.stdout
