"""Write docs/questions.md from the answer boxes of the executed notebooks: a row per question of the course reports.

    python notebooks/questions.py       `make notebooks` and `make notebook-run` also run it
"""

from __future__ import annotations

import csv
import re
import urllib.parse
from collections.abc import Iterator
from typing import NamedTuple

import nbformat

from labs.run import atomic, catalogue
from labs.run.paths import ROOT

PAGE = ROOT / "docs/questions.md"
HEAD = """\
# The 32 questions of the course reports, answered

For everyone who reads or wrote such a report. Five course reports asked these questions ([who they
are](glossary.md#the-course-reports-and-their-questions)). The answers are the first sentences of the notebooks' boxes,
which have the figures, their intervals, the reports' figures and the command; `python notebooks/questions.py` collects
them. *Kind of run* says where a box's figures come from.
[five-reports.md](five-reports.md) has the reports' own answers.

| | question | answer | where | kind of run |
|---|---|---|---|---|
"""
KINDS = {"live": r"\b[Ll]ive\b", "reference runs": r"\b[Rr]eference runs?\b|laptop cluster", "H200": r"\bH200\b",
         "a real Slurm": r"\bSlurm\b", "by formula": r"\b[Bb]y formula\b", "counted": r"\b[Cc]ounted\b"}
"""Kinds of runs, by a pattern for the box's text."""


class Box(NamedTuple):
    """An answer box of a notebook."""

    code: str
    answer: str
    where: str
    kinds: list[str]


def boxes(lab: str) -> Iterator[Box]:
    """Yield the answer boxes of an executed notebook, in order, each with the heading of its section.

    A box is a quoted text that begins with a code; its first paragraph answers the question.
    """
    section = ""
    for cell in nbformat.read(ROOT / f"notebooks/{lab}.ipynb", 4).cells:
        texts = [cell.source]
        if cell.cell_type == "code":
            texts = [output.data["text/markdown"] for output in cell.outputs
                     if "text/markdown" in output.get("data", {})]
        for part in "\n\n".join(texts).split("\n\n"):
            if heading := re.findall(r"(?m)^## (.*)$", part):
                section = heading[-1]
            for quote in re.findall(r"(?m)(?:^>.*\n?)+", part):
                yield from _boxes(quote, lab, section)


def _boxes(quote: str, lab: str, section: str) -> Iterator[Box]:
    anchor = urllib.parse.quote(re.sub(r"\s", "-", section.strip()), safe=",:'?!+*")
    where = f"[lab {int(lab[3:5])}, {section}](../notebooks/{lab}.ipynb#{anchor})"
    for text in re.split(r"(?=\*\*[A-Z]\d(?:\.\d)?\.\*\* )", re.sub(r"(?m)^> ?", "", quote)):
        if match := re.match(r"\*\*([A-Z]\d(?:\.\d)?)\.\*\*\s+(.*?)(?:\n\n|\Z)", text, re.S):
            kinds = [kind for kind, words in KINDS.items() if re.search(words, text)] or ["computed"]
            yield Box(match[1], _cell(match[2]), where, kinds)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def page() -> str:
    """Return docs/questions.md."""
    found = [box for lab in catalogue.lab_names() for box in boxes(lab)]
    rows = []
    with (ROOT / "data/reference/questions.csv").open(encoding="utf-8", newline="") as file:
        questions = {row["code"]: row["question"] for row in csv.DictReader(file)}
    for code, question in questions.items():
        mine = [box for box in found if box.code == code]
        kinds = dict.fromkeys(kind for box in mine for kind in box.kinds)
        columns = (f"**{code}**", question, *("<br>".join(filter(None, (getattr(box, name) for box in mine)))
                                              for name in ("answer", "where")), "; ".join(kinds))
        rows.append(f"| {' | '.join(columns)} |")
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    atomic.write_text(PAGE, page())
