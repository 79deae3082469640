"""Graded questions and guesses: right answers pass, wrong ones get a hint, and neither needs the solutions."""

import math
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest

from labs import exercises, lab10_caltech
from labs.exercises import grading, judged, selecting
from labs.lint import rules, tables
from labs.run import catalogue, command_line, fields
from labs.run.errors import LabError
from labs.run.paths import ROOT
from tests.exercises import planted
from tests.exercises.solved import solution, solved, with_solutions
from tests.notebooks import committed

LABS = catalogue.lab_names()
QUESTIONS = {lab: [name for name, entry in exercises.entries(lab).items() if isinstance(entry, grading.Question)]
             for lab in LABS}
EVERY = [question for lab in LABS for question in QUESTIONS[lab]]
WRONG = planted.mistakes("answers")


@pytest.fixture(scope="module")
def results_root(tmp_path_factory):
    return planted.write(tmp_path_factory.mktemp("results"), *planted.RECORDS)


@with_solutions
@pytest.mark.parametrize("question", EVERY)
def test_grader_and_solution_agree_and_whatever_else_is_answered_is_wrong(question, results_root, tmp_path, capsys):
    exercises.check(question, solution(question)(exercises.runs(question, results_root)), results_root)
    assert capsys.readouterr().out.startswith(f"{question}: right: ")
    for answer in (None, "a lot", True, {}, [None], float("nan"), 10**400, object()):
        with pytest.raises(AssertionError, match=rf"^{question}: "):
            exercises.check(question, answer, results_root)
    assert question in {name for name, *_ in WRONG}, "each question has a typical mistake"
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
        assert {*rest} <= {"--only", *(sweep.name for sweep in catalogue.load_lab(lab).sweeps["demo"])}


@with_solutions
@pytest.mark.parametrize(("question", "answer", "hint"), WRONG)
def test_a_mistake_is_named_and_the_figure_is_not(question, answer, hint, results_root):
    runs = exercises.runs(question, results_root)
    right = solution(question)(runs)
    given = eval(answer, {"runs": runs, "right": right, "math": math, "total": planted.total})
    with pytest.raises(AssertionError, match=hint) as wrong:
        exercises.check(question, given, results_root)
    text = str(wrong.value)
    assert all(f"{run['lab']}/{run['run']}" in text for run in runs)
    rest = text.replace(f"{given:.6g}", "") if isinstance(given, int | float) else text
    if isinstance(right, float) and not float(right).is_integer():
        assert not any(math.isclose(float(number), right, rel_tol=0.004) for number in re.findall(r"\d+\.\d+", rest))


@with_solutions
def test_answers_are_shown_and_an_unknown_question_is_refused(results_root, capsys):
    right = solution("lab04.q1")(exercises.runs("lab04.q1", results_root))
    for key in (str, np.int64):  # `labs grade` reads both from JSON.
        exercises.check("lab04.q1", {key(batch): np.float64(value) for batch, value in right.items()}, results_root)
    with pytest.raises(LabError, match=r"^unknown question '.*'; there are: lab04\.q1, .*lab04\.bug$"):
        exercises.check("lab04.q9", 1)
    capsys.readouterr()
    exercises.show({"lab02.q1": 2.3, "lab02.q2": None, "lab02.q3": 31.25}, results_root)
    assert re.findall(r"(?m)^lab\d\d\.q\d: (\S+)", capsys.readouterr().out) == ["right:", "no", "31.25"]


def test_a_real_run_of_lab_10_is_graded(tmp_path):
    """The real runs of the other labs are graded where they are made, in tests/labs."""
    lab10_caltech.run(lab10_caltech.Config(epochs=2), fields.Options(results=tmp_path))
    solved(*QUESTIONS["lab10_caltech"], results_root=tmp_path)


def test_a_grader_says_what_lint_says_of_a_disturbed_record(tmp_path, capsys):
    one, two = planted.made("lab02", epochs=4), planted.made("lab02", 4, 350, epochs=4)
    two["history"][2]["train_seconds"] *= 1.6
    root = planted.write(tmp_path, one, two)
    exercises.check("lab02.q3", 8, root)
    assert "Disturbed" not in capsys.readouterr().out, "a number of steps is what it is on a busy machine"
    (finding,) = rules.judge(tables.from_records([one, two]))
    exercises.check("lab02.q1", 3.5, root)
    assert finding.text.partition(": ")[2] in capsys.readouterr().out
    with pytest.raises(AssertionError, match=r"is not right: .*Disturbed: .*Measure again"):
        exercises.check("lab02.q1", 4, root)


def pair(*runs, **how) -> list[str]:
    return [run["run"] for run in selecting.pair_with_one_worker("nothing", **how)(runs)]


def test_runs_are_compared_with_one_worker_of_the_same_settings():
    one, other = planted.made("lab02"), planted.made("lab02", base_lr=0.1)
    slow = planted.made("lab02", layout={"threads": 2})
    many, again = planted.made("lab02", 4, seed=2), planted.made("lab02", 4)
    assert pair(one, other, slow, many) == [one["run"], many["run"]]
    assert pair(one, many, again)[1] == again["run"], "the newest"
    on_gpus = planted.made("lab02", 4, layout={"gpus": 4})
    assert pair(slow, on_gpus)[0] == slow["run"], "threads do not matter there"
    one, small = planted.made("lab04", batch_size=64), planted.made("lab04", batch_size=16)
    many = planted.made("lab04", 4, batch_size=16)
    assert pair(one, small, many)[0] == small["run"]
    assert pair(one, small, many, strong=True)[0] == one["run"], "the same global batch"


@pytest.mark.parametrize("lab", LABS)
def test_a_page_asks_the_lab_s_questions_and_judges_its_guesses(lab):
    *cells, markdown, code = committed.cells(lab)
    text = "".join(markdown["source"])
    assert re.findall(r"(?m)^\* \*\*(lab\d\d\.q\d)\*\* .* \*Answer: .*\.\*$", text) == QUESTIONS[lab]
    assert "".join(code["outputs"][0]["text"]) == "".join(f"{name}: no answer yet\n" for name in QUESTIONS[lab])
    source = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    guesses = re.findall(r"^(guess\w*) = ", source, re.M)
    assert len(guesses) == len(re.findall(r"judged\((?:guess|mine)", source)) >= 6


def test_graders_need_neither_solutions_nor_tensorflow_nor_plots(tmp_path, results_root):
    shutil.copytree(ROOT / "labs", tmp_path / "labs", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "try.py").write_text(
        "import sys\nsys.modules |= dict.fromkeys(('tensorflow', 'matplotlib', 'keras', 'horovod', 'solutions'))\n"
        "from labs import exercises\nexercises.check('lab02.q1', 2.3)\n"
        f"for lab in {LABS}:\n    [exercises.runs(name) for name in exercises.entries(lab)]\n")
    environment = {"LABS_RESULTS": str(results_root), "PYTHONPATH": str(tmp_path), "PATH": ""}
    subprocess.run([sys.executable, "try.py"], cwd=tmp_path, env=environment, check=True)


@pytest.mark.parametrize(("guess", "right", "tolerance", "verdict"), [
    ({"a": None}, {"a": 1}, {}, "{'a': None}"),
    (1.5, np.float64(1.53), {"within": 0.1}, "1.5: right: 1.53 (within 10% is right)"),
    (0.5, 1.53, {"within": 0.1}, "0.5: not quite: 1.53 (within 10% is right)"),
    (" Ring", "ring", {}, "' Ring': right"),
    (True, np.True_, {}, "True: right"),
    (1, True, {}, "1: not quite: True"),
    ((1, 1, 2), [1, 1, 2], {}, "(1, 1, 2): right"),
    ([[4, 6]], [[4, 6], [4, 6]], {}, "[[4, 6]]: not quite: [[4, 6], [4, 6]]"),
    ({"a": 2, "b": None}, {"a": 2, "b": 3}, {}, "{'a': 2, 'b': None}: incomplete: {'a': 2, 'b': 3}"),
    (128, {32, 128}, {}, "128: right"),
    ("67%", 0.67, {}, "'67%': the answer must be a number, such as 0.67 or 18760"),
    ((18, 760), 18_760, {}, "(18, 760): the answer must be a number, such as 0.67 or 18760"),
])
def test_a_guess_is_judged(guess, right, tolerance, verdict):
    assert judged(guess, right, **tolerance) == verdict
