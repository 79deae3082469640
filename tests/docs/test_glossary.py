"""The glossary: its terms are used where it says, its names exist in the code, and it has every question."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from labs.run.paths import ROOT

DOCS = ROOT / "docs"
PAGE = (DOCS / "glossary.md").read_text()
GROUPS = {heading: [[cell.strip() for cell in line.strip("|").split(" | ")] for line in body.splitlines()
                    if line.startswith("| ")][1:]
          for heading, _, body in (group.partition("\n") for group in PAGE.split("\n## ")[1:])}
"""The rows of each group's table, by its heading."""
QUESTIONS = GROUPS["The course reports and their questions"]
TERMS = [row for heading, rows in GROUPS.items() for row in rows
         if heading not in ("Notation", "Figures", "The course reports and their questions")]
LINK = re.compile(r"\]\(([^)]+)\)")


def text(path: Path) -> str:
    """Return a page, or all cells of a notebook, in lower case and with single blanks."""
    page = path.read_text()
    if path.suffix == ".ipynb":
        page = " ".join("".join(cell["source"]) for cell in json.loads(page)["cells"])
    return re.sub(r"\s+", " ", page).lower()


def targets(cell: str) -> list[Path]:
    return [DOCS / (unquote(link).partition("#")[0] or "glossary.md") for link in LINK.findall(cell)]


@pytest.mark.parametrize("row", TERMS, ids=lambda row: row[0])
def test_the_page_that_introduces_a_term_uses_it(row):
    term, meaning, where = row
    assert 1 <= len(re.findall(r"[.?](?:\s|$)", meaning)) <= 2, "one or two sentences"
    names = [name.strip(" `").lower().removeprefix("to ").removesuffix("'s law")
             for name in re.split(r",|\(|\)", term) if name.strip(" `)")]
    pages = targets(where)
    assert pages, "a term needs a link"
    assert any(name in text(page) for page in pages for name in names), f"{where} uses none of {names}"


def test_no_term_is_there_twice():
    names = [name.strip(" `") for row in TERMS for name in row[0].partition(" (")[0].split(",")]
    twice = {name for name in names if names.count(name) > 1}
    assert twice <= {"trial", "kernel"}, "these two have two meanings, and say of what"


def test_each_symbol_has_a_unit_and_a_name_that_the_code_uses():
    sources = "\n".join(path.read_text() for path in (ROOT / "labs").rglob("*.py"))
    notebooks = "\n".join(text(path) for path in (ROOT / "notebooks").glob("*.ipynb"))
    assert {row[0].strip("*")[0] for row in GROUPS["Notation"]} >= set("NbBTSEM\u03b7\u03b1\u03b2")
    for symbol, meaning, unit, where, names in GROUPS["Notation"]:
        assert meaning, symbol
        assert unit, symbol
        assert targets(where), symbol
        words = [re.findall(r"\w+", name)[-1] for name in re.findall(r"`([^`]+)`", names)]
        assert words, symbol
        assert [word for word in words if word not in sources and word not in notebooks] == [], symbol


def test_every_question_of_the_notebooks_is_explained_and_answered_where_it_says():
    codes = [row[0] for row in QUESTIONS]
    assert len(codes) == len(set(codes)) == 32
    used = {code for path in (ROOT / "notebooks").glob("*.ipynb")
            for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "markdown"
            for code in re.findall(r"\b[FMCTA]\d(?:\.\d)?\b", "".join(cell["source"]))}
    assert used <= set(codes)
    for code, question, where in QUESTIONS:
        assert question.endswith("?"), code
        assert all(code.lower() in text(page) for page in targets(where)), f"{where} does not name {code}"


@pytest.mark.parametrize("row", GROUPS["Figures"], ids=lambda row: row[0])
def test_a_figure_of_the_page_exists(row):
    source = (ROOT / "labs/course/drawings.py").read_text()
    for name in re.findall(r"drawings\.(\w+)\(", "".join(row)):
        assert f"\ndef {name}(" in source
