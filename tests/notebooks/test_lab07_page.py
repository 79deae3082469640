"""Lab 7's page: each transport has its own figures, under its own name."""

from __future__ import annotations

import re

import pytest

from tests.notebooks.committed import cell, cells, printed, table

LAB = "lab07_vit"


def measured(column: str) -> dict[str, float]:
    """Return a column of the table of runs, by transport."""
    rows = table(cell(LAB, 'runs["speedup"] ='))
    return {name.removeprefix("2 workers, "): float(row[column]) for (name,), row in rows.items() if name != "1 worker"}


def answer(question: str) -> str:
    return table(cell(LAB, "by_transport"))[(question,)]["here"]


@pytest.mark.parametrize(("question", "column"), [
    ("accuracy of TCP (Gloo) and NCCL", "test_accuracy"), ("train time of TCP (Gloo) and NCCL", "seconds_per_epoch"),
])
def test_each_transport_has_its_own_figure(question, column):
    """The page said "Gloo, MPI: [1.22, 0.76]", and the list was MPI's and Gloo's."""
    answers = {name: float(value) for name, value in re.findall(r"(\w+) ([\d.]+)", answer(question))}
    assert answers == pytest.approx(measured(column), abs=0.001)
    assert set(answers) == {"MPI", "Gloo"}


@pytest.mark.parametrize("question", ["train time of the small ViT", "train time of the tiny model"])
def test_each_transport_has_its_own_verdict(question):
    """The page said that two workers train the ViT slower; over MPI they were 1.22 times as fast."""
    answers = {name: (float(value), verdict) for name, value, verdict
               in re.findall(r"over (\w+): speedup ([\d.]+), (\w+) \(1 run\)", answer(question))}
    assert answers
    assert all(verdict == ("faster" if value > 1 else "slower") for value, verdict in answers.values() if value != 1)
    if question.endswith("ViT"):
        assert {name: value for name, (value, _) in answers.items()} == pytest.approx(measured("speedup"), abs=0.006)


def test_a_run_of_two_workers_is_set_against_the_run_of_one_before_it():
    """Each said "no speedup: no run of 1 worker", right after that run."""
    output = "".join(printed(each) for each in cells(LAB))
    assert "no speedup" not in output
    assert output.count("2 workers against one, same global batch: speedup") == 3
