"""What programs write into the docs is what stands there: questions, reports' tables, and what blocks of code print."""

import contextlib
import io
import re
import runpy

import nbformat
import pandas as pd
import pytest

from labs.cli.commands import dispatch
from labs.run import catalogue, command_line
from labs.run.paths import ROOT


def test_each_question_has_its_row_from_the_boxes_of_the_notebooks():
    program = runpy.run_path(str(ROOT / "notebooks/questions.py"))
    page = program["page"]()
    assert program["PAGE"].read_text() == page, "`python notebooks/questions.py` writes it"
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| **")]
    assert len(rows) == 32
    assert [row[0] for row in rows if not row[2].strip() or "notebooks/lab" not in row[3]] == []


def test_the_five_reports_have_all_that_their_program_makes():
    program, page = runpy.run_path(str(ROOT / "notebooks/reports.py")), (ROOT / "docs/five-reports.md").read_text()
    assert program["page"](page) == page, "`python notebooks/reports.py` writes it"
    made = re.findall(r"<!-- made: (\w+) -->", page)
    parts = [f"{kind}_{report}" for kind in ("claims", "lint") for report in program["LINTED"]]
    assert sorted(made) == sorted([*program["TABLES"], *parts])


def test_each_figure_of_a_report_stands_in_the_line_that_is_named(samples):
    reports = samples.parent / "reports"
    if not reports.is_dir():
        pytest.skip("the texts of the reports are not in this clone")
    claims = pd.read_csv(ROOT / "data/reference/claims.csv", keep_default_na=False)
    assert set(claims["report"]) == set("FMCTA")
    for claim in claims.query("kind == 'stated'").itertuples():
        first, _, last = str(claim.line).partition("-")
        lines = (reports / f"report-{claim.report}.txt").read_text().splitlines()[int(first) - 1:int(last or first)]
        text = re.sub(r"\s+", " ", " ".join(lines))
        for figure in claim.figures.split(";"):
            assert figure in text, f"{claim.report} {claim.line}: {figure}"


@pytest.fixture(scope="module")
def boxes() -> list[str]:
    """Return what the pages quote: the answers, and what they say of the reports."""
    texts = []
    for path in sorted((ROOT / "notebooks").glob("lab*.ipynb")):
        for cell in nbformat.read(path, 4).cells:
            texts += [cell.source] if cell.cell_type == "markdown" else [
                output.get("data", {}).get("text/markdown", "") for output in cell.outputs]
    return re.findall(r"(?m)(?:^>.*\n?)+", "\n\n".join(texts))


def test_each_line_of_a_report_that_a_box_names_has_its_claim(boxes):
    claims = pd.read_csv(ROOT / "data/reference/claims.csv", keep_default_na=False)
    known = set(claims["report"] + claims["line"].astype(str))
    named = [([letter + lines for letter in re.findall(r"[Rr]eport ([FMCTA])\b", box)], box)
             for box in boxes for lines in re.findall(r"\blines? (\d+(?:-\d+)?)", box)]
    assert [box for lines, box in named if not known.intersection(lines)] == []
    assert len(named) > 50


def test_each_command_of_a_box_is_one(boxes):
    commands = {command for box in boxes for command in re.findall(r"`labs ((?:cluster )?(?:run|sweep) [^`]+)`", box)}
    for command in sorted(commands):
        what, lab, *options = re.sub(r"^cluster |--sbatch|--workers \d|--data \S+", "", command).split()
        if what == "run":
            command_line.parse(catalogue.load_lab(lab), options)
        else:
            assert dispatch([what, lab, *options, "--list"]) == 0, command
    assert len(commands) > 25


@pytest.mark.parametrize("name", ["speed", "how-we-measure"])
def test_each_block_of_python_prints_what_the_page_shows(name):
    page = (ROOT / f"docs/{name}.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```\n+```\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == page.count("```python") >= 3
    names: dict[str, object] = {}
    for program, printed in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(program, names)
        assert output.getvalue() == printed, program
