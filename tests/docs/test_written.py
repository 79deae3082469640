"""What programs write into the docs is what stands there: questions, reports' tables, and what blocks of code print."""

import contextlib
import io
import re
import runpy

import pytest

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
