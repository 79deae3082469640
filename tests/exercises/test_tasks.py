"""Code exercises: right functions pass, and wrong ones get a hint with the smallest example and the broken property."""

import copy
import inspect
import math
import re
from typing import Any

import numpy as np
import pytest

from labs import exercises
from labs.exercises import code_tasks, fresh_process
from labs.run import catalogue
from labs.run.paths import ROOT
from tests.exercises import planted
from tests.exercises.solved import solution, with_solutions
from tests.notebooks import committed

TASKS = {task: entry for lab in catalogue.lab_names() for task, entry in exercises.entries(lab).items()
         if isinstance(entry, code_tasks.Task)}
BUGS = [task for task, entry in TASKS.items() if not entry.arguments]
HERE = [task for task, entry in TASKS.items() if entry.arguments and not entry.on_workers]


@with_solutions
@pytest.mark.parametrize("task", HERE)
def test_a_solution_passes_and_a_table_of_another_students_answers_does_not(task, capsys):
    exercises.check(task, solution(task))
    assert capsys.readouterr().out.startswith(f"{task}: right: ")
    answers: dict[str, Any] = {}

    def remember(*args):
        return answers[repr(args)] if answers.get("full") else answers.setdefault(repr(args), solution(task)(*args))

    remember.__doc__ = solution(task).__doc__
    for seed in range(1, 9):
        planted.grade_here(task, remember, seed)
    answers["full"] = True
    with pytest.raises(AssertionError, match="KeyError"):
        planted.grade_here(task, remember, 9)


def flatten(nested: Any) -> list[float]:
    """Return all numbers in a nested value; a text has none."""
    if isinstance(nested, dict | list | tuple | np.ndarray):
        return [each for item in (nested.values() if isinstance(nested, dict) else nested) for each in flatten(item)]
    return [] if isinstance(nested, str) else [float(nested)]


@with_solutions
@pytest.mark.parametrize(("task", "change", "hint"), planted.mistakes("functions"))
def test_a_hint_names_the_property_that_is_broken_and_not_the_result(task, change, hint):
    function, calls = planted.change_solution(task, change), []

    def remember(*args):
        calls.append(copy.deepcopy(args))
        return function(*args)

    remember.__doc__ = function.__doc__
    with pytest.raises(AssertionError, match=hint) as wrong:
        planted.grade_here(task, remember)
    text, returned, broken = str(wrong.value).partition(" returned ")
    assert re.match(rf"`{task[6:]}\(\w+=.*\)`", text)
    if returned and " not ValueError" not in broken:
        mentioned = [float(number) for number in re.findall(r"\d+\.?\d*", broken.rpartition(": ")[2])]
        distinct = [value for value in flatten(solution(task)(*calls[-1])) if value > 4 or value % 1]
        assert not [value for value in distinct if any(math.isclose(value, each, rel_tol=1e-3) for each in mentioned)]


ODD = [None, "a lot", True, {}, float("nan"), -1, [None], [[1], [1, 2]], (1, 2, "3"), ([[[]]], [None]), object(),
       {"input": None, "compute": 1, "communication": 1, "start": 1, "other": 1}]


@pytest.mark.parametrize("task", HERE)
def test_whatever_a_function_returns_a_grader_gets_an_assertion(task):
    for returned in ODD:
        with pytest.raises(AssertionError):
            planted.grade_here(task, lambda *args, returned=returned: returned)
    with pytest.raises(AssertionError, match=rf"^{task}: the answer is the function"):
        exercises.check(task, 1)


# The cell that defines a function, run alone in a fresh process.

EXCESS = "def excess(one, many, n):\n    return {k: %s for k in one}\n"
REST = "def rest(order, seen, rank, size):\n    return %s\n"
HELPERS = """
import dataclasses, functools, pickle, sys
from collections import namedtuple
from fractions import Fraction
import pandas as pd
from labs import exercises, lab04_speedup as lab
get_ipython().run_line_magic('matplotlib', 'inline')
n, EPS, INF, OPS = 'taken', np.finfo(float).eps, math.inf, {'minus': lambda a, b: a - b}
rng = np.random.default_rng(0)
part = functools.partial(lambda p, s, n: p * s / n, 1)
open('mine.py', 'w').write('ideal = lambda t: t')
sys.path.insert(0, '.')
from mine import ideal
Named = namedtuple('Named', 'value')
class Ledger:
    def __init__(self, seconds): self.seconds = seconds
    def __call__(self, n): return part(ideal(self.seconds), n)
@dataclasses.dataclass
class Pair:
    many: float
    one: float
def excess(one, many, n):
    pairs = {k: pickle.loads(pickle.dumps(Pair(many[k], Ledger(one[k])(n)))) for k in one}
    values = {k: math.fsum([OPS['minus'](pair.many, pair.one), 0 * EPS * rng.normal()]) for k, pair in pairs.items()}
    return pd.Series({k: Named(Fraction(value)).value for k, value in values.items()}).to_dict()
exercises.show({"lab04.excess": excess})
"""
NEEDS = "this cell needs `%s`, which it does not define: define it in this cell"
CELLS = {
    "helpers of all kinds": ("lab04.excess", HELPERS, "^$"),
    "a Series": ("lab12.rest", "import pandas as pd\n" + REST % "pd.Series(order[seen:], dtype=int).iloc[rank::size]",
                 "^$"),
    "a name of another cell": ("lab04.efficiency", "def efficiency(one, many, n):\n    return rng.normal()\n",
                               NEEDS % "rng"),
    "a name at once": ("lab04.excess", "part = INF\n" + EXCESS % "one[k]", NEEDS % "INF"),
    "a module beside the notebook": ("lab04.excess", "import mine\n" + EXCESS % "one[k]",
                                     "imports `mine`, which is not installed"),
    "another function alone": ("lab04.excess", "mine = lambda one, many, n: {}\n", NEEDS % "excess"),
    "the grader": ("lab12.rest", REST % "__import__('solutions.lab12_elastic').rest()", "imports `solutions.lab12"),
    "hash()": ("lab10.subset", "def subset(name, test_split, validation_split, seed):\n"
               "    point = hash(f'{seed}/{name}') % 100000 / 100000\n    if point < test_split:\n"
               "        return 'test'\n"
               "    held = test_split + (1 - test_split) * validation_split\n"
               "    return 'validation' if point < held else 'training'\n", "in another process this image is"),
    "the order of a set": ("lab02.shard", "def shard(indices, rank, size, epoch, seed):\n"
                           "    texts = sorted({str(i) for i in indices}, key=lambda t: hash((t, epoch, seed)))\n"
                           "    texts += texts[:-len(texts) % size]\n    return [int(t) for t in texts[rank::size]]\n",
                           "in another process the same call returned something else"),
    "a signal": ("lab12.rest", "import os\n" + REST % "os.kill(os.getpid(), 11)", "it ended its process"),
    "an endless loop": ("lab12.rest", "def rest(*args):\n    while True: pass\n", "it had not ended after 3 s"),
    "an escape sequence": ("lab12.rest", "def rest(*args):\n    raise ValueError('\\x1b[2J' * 10**6)\n",
                           r"raised ValueError: (\\x1b\[2J)+"),
    "memory": ("lab12.rest", "def rest(*args):\n    return bytearray(1 << 33)\n", "raised MemoryError"),
    "a large answer": ("lab12.rest", "def rest(*args):\n    return 'x' * (2 << 20)\n", "or returned too much"),
}


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_that_runs_alone_is_right_and_others_get_one_line_with_the_reason(name, monkeypatch):
    task, cell, reason = CELLS[name]
    monkeypatch.setattr(fresh_process, "SECONDS", 3 if "while" in cell else 30)
    said = ""
    try:
        exercises.grade(task, cell, [], "s1")
    except AssertionError as wrong:
        said = str(wrong)
    assert re.search(reason, said), said
    assert len(said) < 1000
    assert said.isprintable()


def test_a_function_that_the_cell_does_not_give_is_not_judged_as_another():
    page = planted.cell("def mine(one, many, n):\n    return {}\n" + EXCESS % "many[k] - one[k] / n")
    with pytest.raises(AssertionError, match=r"is not the page's `excess`: define `excess` in this cell"):
        exercises.check("lab04.excess", page["mine"])


# The pages' cells and scripts. tests/exercises/test_tasks_on_workers.py runs the scripts.

@with_solutions
@pytest.mark.parametrize("task", TASKS)
def test_the_page_has_the_task_and_has_run_it(task):
    arguments, name = ", ".join(TASKS[task].arguments), task.partition(".")[2]
    (cell,) = [each for each in committed.cells(catalogue.resolve(task[:5]))
               if f'exercises.show({{"{task}": {name}}})' in "".join(each["source"])]
    assert "".join(cell["outputs"][0]["text"]).startswith(f"{task}: no answer yet")
    if arguments:
        source = "".join(cell["source"])
        assert re.search(rf'def {name}\({arguments}\):\n    """.*\n    \.\.\.  # YOUR CODE\n', source, re.DOTALL)
        assert max(map(len, source.splitlines())) <= 79, "a longer line is cut at the edge of the page"
        assert list(inspect.signature(solution(task)).parameters) == arguments.split(", ")


@with_solutions
@pytest.mark.parametrize("task", BUGS)
def test_every_other_line_and_symptom_of_the_page_is_refused_with_a_reason(task):
    (text,) = ["".join(cell["source"]) for cell in committed.cells(catalogue.resolve(task[:5]))
               if "".join(cell["source"]).startswith("### Find the bug")]
    symptoms = re.search(r"What is the symptom \((.*?)\), and", text)[1].replace('`"', '"').replace('"`', '"')
    lines, right = re.search(r"which line causes it \((.*?)\)", text)[1].split(", "), solution(task)
    others = [right | {"symptom": symptom} for symptom in re.findall(r'"([^"]+)"', symptoms)]
    others += [right | {"line": form} for line in lines for form in (line, int(line), f"Line {line}")]
    assert len(lines) == 5
    for answer in others:
        if answer["symptom"] == right["symptom"] and f"line {answer['line']}".endswith(right["line"][-2:]):
            exercises.check(task, answer)
        else:
            with pytest.raises(AssertionError, match=r"(symptom|line): .* is not right: \w.{20,}"):
                exercises.check(task, answer)
    with pytest.raises(AssertionError, match=r"the answer is {'symptom': \.\.\., 'line': \.\.\.}, not 'line 1'$"):
        exercises.check(task, "line 1")


@with_solutions
@pytest.mark.parametrize("lab", catalogue.lab_names())
def test_the_rubric_has_the_questions_of_the_page(lab):
    (questions,) = [text.partition("## Questions\n")[2] for cell in committed.cells(lab)
                    if "## Questions\n" in (text := "".join(cell["source"]))]
    rubric = re.split(r"(?m)^## Lab ", (ROOT / "solutions/rubric.md").read_text())[int(lab[3:5])]
    assert re.findall(r"(?m)^\*\*(\d+)\. ", rubric) == re.findall(r"(?m)^(\d+)\. ", questions)
