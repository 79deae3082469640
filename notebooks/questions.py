"""Write docs/questions.md from the answer boxes of the executed notebooks: a row per question of the course reports.

    python notebooks/questions.py       `make notebooks` and `make notebook-run` do it, too
"""

from __future__ import annotations

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

Five course reports asked these questions ([who they are](glossary.md#the-course-reports-and-their-questions)). The
answers are the boxes of the notebooks, with the figures of the committed runs; `python notebooks/questions.py` collects
them. *Kind of run* says where an answer's figures come from.

| | question | answer | the report | where | kind of run |
|---|---|---|---|---|---|
"""
KINDS = {"live, two cores": r"\blab\.run\(|\blocal\.run\(|pair\.run\(|\.train\(|%%px",
         "reference runs, two cores": r'"two-cores"', "reference runs, laptop cluster": r'"laptop-cluster"',
         "reference runs, H200": r'"h200"', "a real Slurm": r"slurm_queue\.Queue\("}
"""Kinds of runs, and what the code of their section contains; a section without any counts or computes."""


class Box(NamedTuple):
    """An answer box of a notebook."""

    code: str
    answer: str
    report: str
    where: str
    kinds: list[str]


def boxes(lab: str) -> Iterator[Box]:
    """Yield the answer boxes of an executed notebook, in their order; its title stands in for sections before any."""
    section, code = "", ""
    for cell in nbformat.read(ROOT / f"notebooks/{lab}.ipynb", 4).cells:
        if cell.cell_type == "markdown":
            texts = [cell.source]
        else:
            code += cell.source
            texts = [output.data["text/markdown"] for output in cell.outputs
                     if "text/markdown" in output.get("data", {})]
        for part in "\n\n".join(texts).split("\n\n"):
            if heading := re.findall(r"(?m)^## (.*)$", part):
                section, code = heading[-1], ""
            for quote in re.findall(r"(?m)(?:^>.*\n?)+", part):
                yield from _boxes(quote, lab, section, code)


def _boxes(quote: str, lab: str, section: str, code: str) -> Iterator[Box]:
    """Yield the boxes of a quoted text: a paragraph that begins with a code, and the paragraph about the report."""
    anchor = urllib.parse.quote(re.sub(r"\s", "-", section.strip()), safe=",:'?!+*")
    where = f"[lab {int(lab[3:5])}, {section}](../notebooks/{lab}.ipynb#{anchor})"
    kinds = [kind for kind, pattern in KINDS.items() if re.search(pattern, code)] or ["counted or computed"]
    paragraphs = re.sub(r"(?m)^> ?", "", quote).split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        if match := re.match(r"\*\*([A-Z]\d(?:\.\d)?)\.\*\*\s+(.*)", paragraph.strip(), re.S):
            after = paragraphs[number + 1] if number + 1 < len(paragraphs) else ""
            report = "" if re.match(r"\s*\*\*[A-Z]\d", after) else after
            yield Box(match[1], _cell(match[2]), _cell(report), where, kinds)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def questions() -> dict[str, str]:
    """Return the questions by code, as docs/glossary.md has them."""
    rows = re.findall(r"(?m)^\| ([A-Z]\d(?:\.\d)?) \| (.*?) \|", (ROOT / "docs/glossary.md").read_text())
    return dict(rows)


def page() -> str:
    """Return docs/questions.md."""
    found = [box for lab in catalogue.lab_names() for box in boxes(lab)]
    rows = []
    for code, question in questions().items():
        mine = [box for box in found if box.code == code]
        kinds = dict.fromkeys(kind for box in mine for kind in box.kinds)
        columns = (f"**{code}**", question, *("<br>".join(filter(None, (getattr(box, name) for box in mine)))
                                              for name in ("answer", "report", "where")), "; ".join(kinds))
        rows.append(f"| {' | '.join(columns)} |")
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    atomic.write_text(PAGE, page())
