"""Code exercises: right functions pass, and wrong ones get a hint with the smallest example and the broken property."""

from __future__ import annotations

import copy
import difflib
import inspect
import json
import math
import re
from typing import Any

import numpy as np
import pytest

from labs.course import exercises
from labs.course.exercises import code_tasks, isolated, two_workers
from labs.launch.supervisor import Outcome
from labs.run import catalogue
from labs.run.paths import ROOT
from tests.course.exercises import planted
from tests.course.exercises.solved import solution, with_solutions

TASKS = {task: entry for lab in catalogue.lab_names() for task, entry in exercises.tasks(lab).items()}
CODE = [task for task, entry in TASKS.items() if entry.stub]
BUGS = [task for task in TASKS if task not in CODE]
ON_WORKERS = "lab02.step"
HERE = [task for task in CODE if task != ON_WORKERS]
WRONG = [(f"{lab[:5]}.{name}", function, hint) for lab in catalogue.lab_names()
         for name, function, hint in getattr(planted.of(lab), "WRONG_CODE", [])]


# Functions.

@with_solutions
@pytest.mark.parametrize("task", HERE)
def test_a_solution_passes(task, capsys):
    exercises.check(task, solution(task))
    assert re.fullmatch(rf"{re.escape(task)}: right: .+\n", capsys.readouterr().out)


@pytest.mark.parametrize(("task", "function", "hint"), WRONG)
def test_a_wrong_function_is_refused_with_the_property_that_it_breaks(task, function, hint):
    with pytest.raises(AssertionError, match=hint) as wrong:
        TASKS[task].grade(function)
    assert re.match(rf"`{TASKS[task].stub.__name__}\(\w+=.*\)` (returned|raised) ", str(wrong.value))


def values(nested: Any) -> list[float]:
    """Return all numbers in a nested value; a text has none."""
    if isinstance(nested, str):
        return []
    if isinstance(nested, dict):
        return values(list(nested.values()))
    if isinstance(nested, list | tuple | np.ndarray):
        return [each for item in nested for each in values(item)]
    return [float(nested)]


@with_solutions
@pytest.mark.parametrize(("task", "function", "hint"), WRONG)
def test_a_hint_never_has_the_right_result(task, function, hint, monkeypatch):
    """It has the arguments, what came out, and words; a few small whole numbers are common in words, too."""
    calls: list[tuple] = []
    properties: list[str] = []
    expect = code_tasks.Call.expect

    def remember(*args):
        calls.append(copy.deepcopy(args))
        return function(*args)

    def note(call, holds, broken):
        properties.extend([] if holds else [broken])
        expect(call, holds, broken)

    remember.__doc__ = function.__doc__
    monkeypatch.setattr(code_tasks.Call, "expect", note)
    with pytest.raises(AssertionError):
        TASKS[task].grade(remember)
    if properties:  # Otherwise it raised an error, or should have.
        right = solution(task)(*calls[-1])
        assert code_tasks.shown(right) not in properties[0]
        mentioned = [float(number) for number in re.findall(r"\d+\.?\d*", properties[0])]
        distinct = [value for value in values(right) if value > 4 or not math.isclose(value, round(value))]
        assert not [value for value in distinct if any(math.isclose(value, each, rel_tol=1e-3) for each in mentioned)]


ODD = [None, "a lot", True, {}, float("nan"), -1, [None], [[1], [1, 2]], (1, 2, "3"), ([[[]]], [None]), object(),
       {"input": None, "compute": 1, "communication": 1, "start": 1, "other": 1}]


@pytest.mark.parametrize("task", HERE)
def test_whatever_a_function_returns_a_grader_gets_an_assertion(task):
    for returned in ODD:
        with pytest.raises(AssertionError):
            TASKS[task].grade(lambda *args, returned=returned: returned)
        with pytest.raises(AssertionError, match=rf"^{task}: "):
            exercises.check(task, returned)


STEPS = "def steps_per_epoch(images, batch_size):\n    "
HOSTILE = {
    "print('x' * 10**6); return helper(images, batch_size)": r"^x{1000}\.\.\. \(8,000,008 .*\)\n\S+ right: an int",
    "os._exit(0)": "the function ended its process: it exited with code 0",
    "os.kill(os.getpid(), 11)": "the function ended its process: it was killed by SIGSEGV",
    "while True: pass": "the function had not ended after 1 s",
    "raise SystemExit": r"`steps_per_epoch\(images=1, batch_size=1\)` raised SystemExit$",
    "raise ValueError('\\x1b[2J' * 10**6)": r"raised ValueError: (\\x1b\[2J)+.{,8}\.\.\.$",
    "return lock": r"cannot be copied .*\(TypeError: cannot pickle '_thread.lock' object\); create it inside",
}
CELLS = """
import os
from threading import Lock

lock = Lock()


def helper(images, batch_size):
    return -(-images // batch_size)

"""


@pytest.mark.parametrize("body", HOSTILE)
def test_whatever_a_function_does_the_notebook_goes_on_with_a_short_message(body, monkeypatch, capsys):
    monkeypatch.setattr(isolated, "SECONDS", 1 if "while" in body else 20)
    notebook: dict[str, Any] = {"__name__": "__main__"}
    exec(CELLS + STEPS + body, notebook)
    exercises.show({"lab01.steps_per_epoch": notebook["steps_per_epoch"]})
    output = capsys.readouterr().out
    assert re.search(HOSTILE[body], output.strip()), output
    assert len(output) < 1200
    assert "\x1b" not in output


def test_an_error_is_reported_with_the_call_that_raised_it():
    def divides(images, batch_size):
        return images / (batch_size - 1)

    with pytest.raises(AssertionError, match=r"^lab01\.steps_per_epoch: `steps_per_epoch\(images=1, batch_size=1\)` "
                                             r"raised ZeroDivisionError: division by zero$"):
        exercises.check("lab01.steps_per_epoch", divides)
    with pytest.raises(AssertionError, match=r"raised TypeError: .* takes 1 positional argument but 2 were given"):
        exercises.check("lab01.steps_per_epoch", lambda images: images)


def test_a_docstring_may_say_that_the_remainder_is_dropped(capsys):
    def shard(indices, rank, size, epoch, seed):
        """Remainder: drop."""
        order = np.random.default_rng([seed, epoch]).permutation(indices)
        return order[:len(order) // size * size].reshape(size, -1)[rank]

    exercises.check("lab02.shard", shard)
    assert "(the remainder dropped)" in capsys.readouterr().out


def test_any_honest_interval_passes():
    rng = np.random.default_rng(1)

    def bootstrap(one, many, n):
        if min(len(one), len(many)) < 2:
            raise ValueError
        ratios = [rng.choice(many, len(many)).mean() / rng.choice(one, len(one)).mean() / n for _ in range(2000)]
        return np.mean(many) / np.mean(one) / n, *np.quantile(ratios, [0.025, 0.975])

    exercises.check("lab04.efficiency", bootstrap)


# Stubs and cells.

@with_solutions
@pytest.mark.parametrize("task", CODE)
def test_a_stub_has_an_empty_body_and_the_arguments_of_the_solution(task):
    stub = TASKS[task].stub
    assert stub.__name__ == task.partition(".")[2]
    assert inspect.getsource(stub).endswith("    ...  # YOUR CODE\n")
    assert max(map(len, exercises.cell(task).splitlines())) <= 79, "a longer line is cut at the edge of the page"
    assert inspect.signature(solution(task)) == inspect.signature(stub)


@pytest.mark.parametrize("task", TASKS)
def test_a_cell_runs_before_it_is_filled_in(task, capsys):
    cell = exercises.cell(task)
    planted.cell(cell, exercises=exercises)
    assert capsys.readouterr().out.startswith(f"{task}: no answer yet")


# A function of a notebook, whose source goes to two workers.

def test_the_source_of_a_function_is_that_of_its_newest_cell():
    planted.cell("def step(a):\n    return 1\n")
    new = "def step(a):\n    return 2\n"
    assert two_workers.source_of(planted.cell(new)["step"]) == (new, "step")
    for function in (len, lambda *args: None):
        with pytest.raises(AssertionError, match="define it with `def`"):
            two_workers.source_of(function)


GOOD = {"steps": 3, "initial": [0.0, 0.0], "final": [1.0, 2.0], "alone": [1.0, 2.0 + 1e-7]}
TIMEOUT, FAILED = Outcome(None, "", "", 60), Outcome(1, "", "RuntimeError: no memory", 60)
ENDED = {"error": "UnknownError in `x`: Horovod has been shut down. This was caused by"}
BAD_RUNS = [
    ([{}, {}], False, TIMEOUT, "had not started after 60 s"),
    ([{}, {}], False, FAILED, "did not start: mpirun RuntimeError: no memory"),
    ([{}, {}], True, TIMEOUT, "a rank waits in a collective that the other never calls"),
    ([ENDED, GOOD], True, Outcome(1, "", "", 60), "a rank waits in a collective that the other never calls"),
    ([ENDED, {"error": "NameError in `y`: name 'y' is not defined"}], True, FAILED, "on rank 1 of two, .* NameError"),
    ([GOOD, {}], True, FAILED, "ended in the middle of the steps: mpirun RuntimeError: no memory"),
]


@pytest.mark.parametrize(("reports", "started", "outcome", "hint"), BAD_RUNS)
def test_why_two_workers_took_no_steps(reports, started, outcome, hint):
    with pytest.raises(AssertionError, match=hint):
        two_workers.expect_run(reports, started, outcome)


BAD_WEIGHTS = [
    ({}, {"final": [1.0, 2.1]}, "the two workers hold different weights: the largest difference is 0.1"),
    ({"alone": [1.0, 2.5]}, {}, "the two workers agree, but one worker .* the largest difference is 0.5"),
    ({"final": [0.0, 0.0]}, {"final": [0.0, 0.0]}, "the weights are still those of the start"),
    ({"final": [math.nan, 1.0]}, {}, "a weight is not finite"),
]


@pytest.mark.parametrize(("first", "second", "hint"), BAD_WEIGHTS)
def test_what_is_wrong_with_the_weights_of_two_workers(first, second, hint):
    assert "equal" in two_workers.expect_weights(GOOD, GOOD)
    with pytest.raises(AssertionError, match=hint):
        two_workers.expect_weights(GOOD | first, GOOD | second)


# Scripts with a planted bug. tests/course/exercises/test_tasks_on_workers.py runs them.

def scripts(task: str) -> tuple[list[str], list[str]]:
    """Return the lines of the script with the bug, and of the repaired one."""
    name = f"{task.partition('.')[0]}.py"
    broken, repaired = ((ROOT / folder / name).read_text() for folder in ("debugging", "solutions/debugging"))
    return broken.splitlines(), repaired.replace("Repaired.", "One bug is planted.").replace(
        f"solutions/debugging/{name}", f"debugging/{name}").splitlines()


@with_solutions
@pytest.mark.parametrize("task", BUGS)
def test_the_bug_is_in_the_line_of_the_answer(task, capsys):
    exercises.check(task, solution(task))
    assert f"{task}: right: " in capsys.readouterr().out
    broken, repaired = scripts(task)
    blocks = difflib.SequenceMatcher(None, broken, repaired).get_opcodes()
    (changed,) = [first for tag, first, *_ in blocks if tag != "equal"]
    assert solution(task)["line"] == f"line {changed + 1}"
    assert 30 <= len(broken) <= 50


CANDIDATES = {
    "lab01.bug": {24: "mine = ", 27: "DistributedOptimizer", 31: "log.write_text", 36: "log.open", 39: "A barrier"},
    "lab02.bug": {19: "hvd.rank()", 20: "mine = ", 25: "DistributedOptimizer", 27: "callbacks = []", 31: "allgather"},
    "lab03.bug": {22: "mine = ", 23: "batch_size = ", 24: "learning_rate = ", 26: "DistributedOptimizer",
                  28: "Broadcast"},
    "lab04.bug": {17: "set_random_seed", 23: "DistributedOptimizer", 28: "order = ", 29: "mine = ", 33: "allgather"},
    "lab05.bug": {22: "mine = ", 25: "DistributedOptimizer", 30: "model.fit", 33: "reached = ", 34: "hvd.broadcast("},
    "lab06.bug": {23: "mine = ", 24: "batch_size = ", 25: "Conv2D(16", 28: "DistributedOptimizer", 32: "model.fit"},
    "lab07.bug": {20: "mine = ", 21: "batch_size = ", 22: "steps = ", 25: "DistributedOptimizer", 27: "Broadcast"},
    "lab08.bug": {17: "threads = ", 21: "batch = ", 28: "DistributedOptimizer", 30: "Broadcast", 36: "images_per_sec"},
    "lab09.bug": {20: "held_out = ", 23: "train = ", 26: "DistributedOptimizer", 28: "Broadcast", 32: "model.evaluate"},
    "lab10.bug": {20: "order = ", 22: "mine = ", 26: "DistributedOptimizer", 28: "Broadcast", 32: "hvd.allreduce("},
    "lab11.bug": {21: "learning_rate = ", 23: "DistributedOptimizer", 28: "order = ", 29: "mine = ", 31: "allgather"},
    "lab12.bug": {20: "order = ", 21: "batch = ", 22: "mine = ", 38: "np.savez", 43: 'saved["step"]'},
    "lab13.bug": {17: "shard = ", 21: "mine = ", 33: "reducescatter", 35: "second = ", 37: "allgather"},
}


def complaint(task: str, answer: Any) -> str:
    try:
        exercises.check(task, answer)
    except AssertionError as wrong:
        return str(wrong)
    return ""


@pytest.mark.parametrize("task", BUGS)
def test_every_other_line_and_symptom_is_refused_with_a_reason(task):
    broken = (ROOT / f"debugging/{task.partition('.')[0]}.py").read_text().splitlines()
    choices = {name: re.findall(pattern, TASKS[task].text) for name, pattern in (
        ("symptom", r'`"([^"]+)"`'), ("line", r"(?<=[( ])\d+(?=[,)])"))}
    assert list(map(int, choices["line"])) == list(CANDIDATES[task])
    assert all(text in broken[number - 1] for number, text in CANDIDATES[task].items())
    refused = dict.fromkeys(choices, 0)
    for symptom in choices["symptom"]:
        for line in choices["line"]:
            if hint := complaint(task, {"symptom": symptom, "line": f"line {line}"}):
                wrong = re.fullmatch(rf"{re.escape(task)}: (symptom|line): .* is not right: \w.{{20,}}", hint)
                assert wrong, hint
                refused[wrong[1]] += 1
    assert refused == {"symptom": 5 * (len(choices["symptom"]) - 1), "line": 4}


def test_a_line_may_be_a_number_and_an_answer_has_two_parts(capsys):
    for line in (27, "27", "Line 27"):
        exercises.check("lab02.bug", {"symptom": "the workers end with different weights", "line": line})
    assert capsys.readouterr().out.count("right: ") == 3
    with pytest.raises(AssertionError, match=r"the answer is {'symptom': \.\.\., 'line': \.\.\.}"):
        exercises.check("lab02.bug", "line 1")


# The rubric.

@with_solutions
@pytest.mark.parametrize("lab", catalogue.lab_names())
def test_every_open_question_has_a_model_answer_and_points(lab):
    cells = json.loads((ROOT / f"notebooks/{lab}.ipynb").read_text())["cells"]
    (questions,) = ["".join(cell["source"]).partition("## Questions\n")[2] for cell in cells
                    if "## Questions\n" in "".join(cell["source"])]
    sections = re.split(r"^## Lab ", (ROOT / "solutions/rubric.md").read_text(), flags=re.MULTILINE)
    (section,) = [text for text in sections if text.startswith(f"{int(lab[3:5])}:")]
    answers = re.split(r"^(?=\*\*\d+\. )", section, flags=re.MULTILINE)[1:]
    assert [answer[2:].partition(".")[0] for answer in answers] == re.findall(r"^(\d+)\. ", questions, re.MULTILINE)
    for answer in answers:
        assert re.findall(r"^- \*\*(\d)\*\*: ", answer, re.MULTILINE) == ["2", "1", "0"], answer
        assert len(answer.partition("- **2**")[0].splitlines()) > 1, answer
