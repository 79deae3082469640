"""Code exercises: right functions pass, and wrong ones get a hint with the smallest example and the broken property."""

from __future__ import annotations

import copy
import difflib
import inspect
import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from labs import exercises
from labs.exercises import code_tasks, fresh_process
from labs.run import catalogue
from labs.run.paths import ROOT
from tests.exercises import planted
from tests.exercises.solved import repaired_script, solution, with_solutions

TASKS = {task: entry for lab in catalogue.lab_names() for task, entry in exercises.entries(lab).items()
         if isinstance(entry, code_tasks.Task)}
CODE = [task for task, entry in TASKS.items() if entry.stub]
BUGS = [task for task in TASKS if task not in CODE]
ON_WORKERS = "lab02.step"
HERE = [task for task in CODE if task != ON_WORKERS]
WRONG = [(f"{lab[:5]}.{name}", function, hint) for lab in catalogue.lab_names()
         for name, function, hint in getattr(planted.of(lab), "WRONG_CODE", [])]


# Functions.

def graded(task: str, function: Callable, seed: int = 0) -> str:
    """Return what the grader of a task says of a function that runs here."""
    return TASKS[task].grade(planted.asked(function), seed, doc=function.__doc__ or "")


@with_solutions
@pytest.mark.parametrize("task", HERE)
def test_a_solution_passes_with_the_inputs_of_any_student(task, capsys):
    exercises.check(task, solution(task))
    assert capsys.readouterr().out.startswith(f"{task}: right: ")
    for seed in range(1, 20):
        graded(task, solution(task), seed)


@with_solutions
@pytest.mark.parametrize("task", HERE)
def test_a_table_of_another_students_answers_is_wrong(task):
    answers = {}

    def remember(*args):
        text = repr(args)
        return answers.setdefault(text, solution(task)(*args)) if seed == 1 else answers[text]

    remember.__doc__ = solution(task).__doc__
    seed = 1
    graded(task, remember, seed)
    seed = 2
    with pytest.raises(AssertionError, match=r"KeyError|`adam` was called for 0 weights"):
        graded(task, remember, seed)


@pytest.mark.parametrize(("task", "function", "hint"), WRONG)
def test_a_wrong_function_is_refused_with_the_property_that_it_breaks(task, function, hint):
    with pytest.raises(AssertionError, match=hint) as wrong:
        graded(task, function)
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
        graded(task, remember)
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
            graded(task, lambda *args, returned=returned: returned)
    with pytest.raises(AssertionError, match=rf"^{task}: the answer is the function"):
        exercises.check(task, 1)


# The cell that defines a function, run alone in a fresh process.

EXCESS = "def excess(one, many, n):\n    return {k: %s for k in one}\n"
BEST = "def select(validation, test):\n    best = validation.index(max(validation))\n    return %s\n"
REST = "def rest(order, seen, rank, size):\n    return %s\n"
SUBSET = ("def subset(name, test_split, validation_split, seed):\n    point = %s\n    if point < test_split:\n"
          "        return 'test'\n    return 'validation' if point < test_split + (1 - test_split) * validation_split "
          "else 'training'\n")
PARTS = EXCESS % "many[k] - part(one[k], n)"
RIGHT = {
    "a name of the cell": ("lab04.excess", "n = 'taken'\n" + EXCESS % "many[k] - one[k] / n"),
    "a generator": ("lab04.efficiency", """rng = np.random.default_rng(0)
def efficiency(images_per_sec_1, images_per_sec_n, n):
    if min(len(images_per_sec_1), len(images_per_sec_n)) < 2:
        raise ValueError("two repeats")
    one, many = np.asarray(images_per_sec_1), np.asarray(images_per_sec_n)
    draws = [rng.choice(many, len(many)).mean() / rng.choice(one, len(one)).mean() / n for _ in range(4000)]
    return many.mean() / one.mean() / n, *np.percentile(draws, [2.5, 97.5])
"""),
    "a class": ("lab04.excess", "class Part:\n    def __init__(self, n): self.n = n\n"
                "    def __call__(self, seconds): return seconds / self.n\n" + EXCESS % "many[k] - Part(n)(one[k])"),
    "an object": ("lab04.excess", "class Excess:\n    def __call__(self, one, many, n):\n"
                  "        return {k: many[k] - one[k] / n for k in one}\nexcess = Excess()\n"),
    "a lambda": ("lab04.excess", "excess = lambda one, many, n: {k: many[k] - one[k] / n for k in one}\n"),
    "a helper": ("lab04.excess", "part = lambda seconds, n: seconds / n\n" + PARTS),
    "a partial": ("lab04.excess", "import functools\npart = functools.partial(lambda p, s, n: p * s / n, 1)\n"
                  + PARTS),
    "all of it a partial": ("lab04.excess", "import functools\ndef more(p, one, many, n):\n"
                            "    return {k: many[k] - p * one[k] / n for k in one}\n"
                            "excess = functools.partial(more, 1)\n"),
    "a decorator": ("lab12.rest", "import functools\ndef same(f):\n    @functools.wraps(f)\n    def g(*a):\n"
                    "        return f(*a)\n"
                    "    return g\n@same\n" + REST % "order[seen:][rank::size]"),
    "a dictionary of functions": ("lab04.excess", "OPS = {'part': lambda s, n: s / n}\n" +
                                  EXCESS % "many[k] - OPS['part'](one[k], n)"),
    "a constant": ("lab04.excess", "EPS = np.finfo(float).eps\n" + EXCESS % "many[k] - one[k] / n + 0 * EPS"),
    "numbers of math": ("lab04.excess", EXCESS % "math.fsum([many[k], -one[k] / n])"),
    "fractions": ("lab10.select", "from fractions import Fraction\n" + BEST % "best, Fraction(test[best])"),
    "a named tuple": ("lab10.select", "from collections import namedtuple\n"
                      "Choice = namedtuple('Choice', 'index share')\n"
                      + BEST % "Choice(best, test[best])"),
    "a Series": ("lab12.rest", "import pandas as pd\n" + REST % "pd.Series(order[seen:], dtype=int).iloc[rank::size]"),
    "an array": ("lab12.rest", "ZERO = np.zeros(1, int)\n" + REST % "np.asarray(order[seen:], int)[rank::size] + ZERO"),
    "a range": ("lab12.rest", REST % "tuple(order[i] for i in range(seen + rank, len(order), size))"),
    "a module that the cell writes": ("lab04.excess", "open('mine.py', 'w').write('part = lambda s, n: s / n')\n"
                                      "import sys; sys.path.insert(0, '.')\nfrom mine import part\n" + PARTS),
    "the page's imports": ("lab04.excess", "from labs import lab04_speedup as lab\n"
                           "from labs import exercises\nfrom labs.pages import laws\n"
                           "get_ipython().run_line_magic('matplotlib', 'inline')\n" + EXCESS % "many[k] - one[k] / n"),
    "what the page gives": ("lab04.excess", "def excess(one, many, n):\n    'An earlier try.'\n"
                            "def mine(one, many, n):\n    return {k: many[k] - one[k] / n for k in one}\n"
                            "display(mine)\nfrom labs.exercises import check\n"
                            "check(question='lab4.excess', answer=mine)\n"),
    "a data class that is pickled": ("lab04.excess", "import dataclasses, pickle\n@dataclasses.dataclass\n"
                                     "class Part:\n    n: int\nassert Part.__annotations__ == {'n': int}\n"
                                     + EXCESS % "many[k] - one[k] / pickle.loads(pickle.dumps(Part(n))).n"),
    "a slow second process": ("lab02.shard", "import os, time\ntime.sleep(3 * (os.environ['PYTHONHASHSEED'] == '2'))\n"
                              "def shard(indices, rank, size, epoch, seed):\n"
                              "    order = np.random.default_rng([seed, epoch]).permutation(indices).tolist()\n"
                              "    return (order + order[:-len(order) % size])[rank::size]\n"),
    "a digest": ("lab10.subset", "import hashlib\n" + SUBSET %
                 "int(hashlib.sha256(f'{seed}/{name}'.encode()).hexdigest(), 16) / 2**256"),
}
NEEDS = "this cell needs `%s`, which it does not define: define it in this cell"
WRONG_CELLS = {
    "a name of another cell": ("lab04.efficiency", "def efficiency(one, many, n):\n    return rng.normal()\n",
                               NEEDS % "rng"),
    "a name at once": ("lab04.excess", "part = INF\n" + EXCESS % "one[k]", NEEDS % "INF"),
    "an import of another cell": ("lab12.rest", REST % "pd.Series(order)", NEEDS % "pd"),
    "a module beside the notebook": ("lab04.excess", "import mine\n" + PARTS, "imports `mine`, which is not installed"),
    "an assertion": ("lab04.excess", "assert 1 > 2\n" + EXCESS % "one[k]", "cannot run alone.* AssertionError$"),
    "another function alone": ("lab04.excess", "mine = lambda one, many, n: {}\n", NEEDS % "excess"),
    "the grader": ("lab10.subset", "from labs.exercises.lab10_caltech import reference_subset\n"
                   "subset = lambda *args: reference_subset(*args)\n", "calls the kit's own `labs.exercises"),
    "the solution": ("lab10.select", "from solutions import lab10_caltech\n" + BEST % "lab10_caltech.select()",
                     "calls the kit's own `solutions.lab10_caltech.select`"),
    "hash()": ("lab10.subset", SUBSET % "hash(f'{seed}/{name}') % 100000 / 100000", "in another process this image is"),
    "hash() of a tuple": ("lab10.subset", SUBSET % "hash((seed, name)) % 1000 / 1000", "in another process this image"),
    "the order of a set": ("lab02.shard", "def shard(indices, rank, size, epoch, seed):\n"
                           "    texts = sorted({str(i) for i in indices}, key=lambda t: hash((t, epoch, seed)))\n"
                           "    texts += texts[:-len(texts) % size]\n    return [int(t) for t in texts[rank::size]]\n",
                           "in another process the same call returned something else"),
    "an exit": ("lab12.rest", "import os\n" + REST % "os._exit(0)", "it ended its process$"),
    "a signal": ("lab12.rest", "import os\n" + REST % "os.kill(os.getpid(), 11)", r"its process \(signal 11\)"),
    "an endless loop": ("lab12.rest", "def rest(*args):\n    while True: pass\n", "it had not ended after 2 s"),
    "SystemExit": ("lab12.rest", "def rest(*args):\n    raise SystemExit\n", r"`rest\(.*\)` raised .*SystemExit"),
    "an escape sequence": ("lab12.rest", "def rest(*args):\n    raise ValueError('\\x1b[2J' * 10**6)\n",
                           r"raised ValueError: (\\x1b\[2J)+.{,8}\.\.\.$"),
    "memory": ("lab12.rest", "def rest(*args):\n    return bytearray(1 << 33)\n", "raised MemoryError"),
    "a large answer": ("lab12.rest", "def rest(*args):\n    return 'x' * (2 << 20)\n", "it returned more than 1 MiB"),
    "other arguments": ("lab12.rest", "rest = lambda order: order\n", "raised TypeError: .* takes 1 positional"),
    "another error": ("lab12.rest", REST % "order[0] / seen", r"`rest\(.*seen=0.*\)` raised ZeroDivisionError"),
    "IPython": ("lab12.rest", "def rest(*args):\n    return input()\n", "raised EOFError"),
}


def verdict(task: str, cell: str) -> str:
    """Return what is wrong with the function of a cell; "" if it is right."""
    try:
        fresh_process.grade(task, TASKS[task], cell, "s1")
    except AssertionError as wrong:
        return str(wrong)
    return ""


@pytest.mark.parametrize("name", RIGHT)
def test_a_cell_that_runs_alone_is_right(name, monkeypatch):
    monkeypatch.setattr(fresh_process, "SECONDS", 2 if "slow" in name else 20)
    assert not verdict(*RIGHT[name])


@pytest.mark.parametrize("name", WRONG_CELLS)
def test_a_cell_that_needs_more_or_does_not_answer_gets_one_line_with_the_reason(name, monkeypatch):
    task, cell, reason = WRONG_CELLS[name]
    monkeypatch.setattr(fresh_process, "SECONDS", 2 if "while" in cell else 20)
    said = verdict(task, cell)
    assert re.search(reason, said), said
    assert len(said) < 1000
    assert said.isprintable()


SAME = "import functools\ndef same(f):\n    @functools.wraps(f)\n    def g(*a):\n        return f(*a)\n    return g\n"


@pytest.mark.parametrize("cell", [
    "def rest(a):\n    return 1\n", "rest = lambda: 3\n", "@same\ndef rest(a):\n    return 1\n",
    "import functools\n@functools.cache\ndef rest(a):\n    return a\n",
    "import functools\nrest = functools.partial(lambda x, y: 1, 2)\n", "rest = np.vectorize(lambda x: x)\n",
    "class R:\n    def __call__(self, a):\n        return a\nrest = R()\n"])
def test_the_cell_of_a_function_is_that_which_defines_it(cell):
    same = planted.cell(SAME)["same"]
    assert fresh_process.cell_of(planted.cell(cell, same=same, np=np)["rest"])[0] == cell


def test_a_function_that_the_cell_does_not_give_is_not_judged_as_another():
    page = planted.cell("def mine(one, many, n):\n    return {}\n" + EXCESS % "many[k] - one[k] / n")
    with pytest.raises(AssertionError, match=r"not the `excess` of its cell: define `excess` in this cell"):
        exercises.check("lab04.excess", page["mine"])


def test_what_a_cell_prints_is_shown_and_cut(capsys):
    cell = "print('\\x1b[2J')\ndef rest(*args):\n    print('x' * 10**6)\n"
    with pytest.raises(AssertionError, match="no answer yet"):
        fresh_process.grade("lab12.rest", TASKS["lab12.rest"], cell, "s1")
    assert re.fullmatch(r"\\x1b\[2J\nx+\.\.\. \(1,000,006 characters\)\n", capsys.readouterr().out)


def test_a_student_gets_the_same_inputs_each_time_and_another_student_others(capsys):
    task, cell = "lab12.rest", REST % "print(order, seen, size) or order[seen:][rank::size]"
    said = []
    for owner in ("s1", "s1", "s2"):
        fresh_process.grade(task, TASKS[task], cell, owner)
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2]


VALUES = [None, True, 3, -2**70, 1.5, math.inf, "text", [1, [2, [3]]], {1: {"a": [None]}, 0.5: 0.1}]


def test_a_function_gets_copies_returns_plain_data_and_calls_arguments_that_are_functions():
    """As `adam` in lab 13; its errors pass through."""
    def half(value):
        if value < 0:
            raise ValueError("negative")
        return np.float64(value / 2)

    cell = ("def f(values, array, half):\n    'Drop.'\n    array[0] = half(3)\n    values.append(object())\n"
            "    return values[:-1], {np.int8(2): {half(array[1])}}, np.eye(1, dtype=bool), (b'', np.str_('a'))\n")
    with fresh_process.started(cell, "f") as function:
        answer = function.call([VALUES, np.ones(2), half])
        assert answer.value == [VALUES, {2: [0.5]}, [[True]], ["a bytes", "a"]]
        assert (function.doc, answer.args[1], answer.args[0][-1]) == ("Drop.", [1.5, 1.0], "a object")
        refused = function.call([[], -np.ones(2), half])
        assert (refused.problem, refused.refused) == ("ValueError: negative", True)


def test_a_docstring_may_say_that_the_remainder_is_dropped():
    cell = ("def shard(indices, rank, size, epoch, seed):\n    'Remainder: drop.'\n"
            "    order = np.random.default_rng([seed, epoch]).permutation(indices)\n"
            "    return order[:len(order) // size * size].reshape(size, -1)[rank]\n")
    assert "(the remainder dropped)" in fresh_process.grade("lab02.shard", TASKS["lab02.shard"], cell, "s1")


# The pages' cells.

@with_solutions
@pytest.mark.parametrize("task", TASKS)
def test_the_page_has_the_stub_with_its_hole_and_has_run_it(task):
    stub = TASKS[task].stub
    name = stub.__name__ if stub else "bug"
    page = json.loads((ROOT / f"notebooks/{catalogue.resolve(task[:5])}.ipynb").read_text())
    (cell,) = [each for each in page["cells"] if f'exercises.show({{"{task}": {name}}})' in "".join(each["source"])]
    assert "".join(cell["outputs"][0]["text"]).startswith(f"{task}: no answer yet")
    if stub:
        source = "".join(cell["source"])
        assert inspect.getsource(stub) in source
        assert inspect.getsource(stub).endswith("    ...  # YOUR CODE\n")
        assert max(map(len, source.splitlines())) <= 79, "a longer line is cut at the edge of the page"
        assert inspect.signature(solution(task)) == inspect.signature(stub)
        assert name == task.partition(".")[2]


# Scripts with a planted bug. tests/exercises/test_tasks_on_workers.py runs them.

def scripts(task: str) -> tuple[list[str], list[str]]:
    """Return the lines of the script with the bug, and of the repaired one."""
    lab = task.partition(".")[0]
    return (ROOT / f"debugging/{lab}.py").read_text().splitlines(), repaired_script(lab).splitlines()


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
