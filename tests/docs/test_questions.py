"""docs/questions.md: a row for each of the reports' 32 questions, from the answer boxes of the notebooks."""

from __future__ import annotations

import runpy

import pytest

from labs.run.paths import ROOT


@pytest.fixture(scope="module")
def program() -> dict:
    return runpy.run_path(str(ROOT / "notebooks/questions.py"))


def test_the_page_is_what_the_boxes_say(program):
    assert program["PAGE"].read_text() == program["page"](), "`python notebooks/questions.py` writes it"


def test_each_question_has_an_answer_in_a_notebook(program):
    rows = [line.split(" | ") for line in program["page"]().splitlines() if line.startswith("| **")]
    assert len(rows) == 32
    assert [row[0] for row in rows if not row[2].strip() or "notebooks/lab" not in row[4]] == []


def test_a_cell_may_answer_two_questions(program):
    quote = "> **A1.** Yes, 5 | 6.\n>\n> **Report A:** no.\n>\n> **A2.1.** *No*,\n> never."
    first, second = program["_boxes"](quote, "lab03_lr_scaling", "A1: why", "labs.run lab.run(config)")
    assert first == ("A1", "Yes, 5 \\| 6.", "**Report A:** no.",
                     "[lab 3, A1: why](../notebooks/lab03_lr_scaling.ipynb#A1:-why)", ["live"])
    assert second[:3] == ("A2.1", "*No*, never.", "")
    assert program["_kinds"]("0.9, a reference run on an H200", "lab.run(config)") == ["reference runs", "H200"]
