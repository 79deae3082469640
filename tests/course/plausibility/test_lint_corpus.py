"""Tables as students type them, in tables.txt: the mistake in each wrong one is found, nothing in the right ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from labs.course.plausibility import checker

CASES = re.findall(r"^== ([^\n]+): (?:nothing|([^\n]+), line (\d+))\n(.+?)\n(?=\n==|\Z)",
                   Path(__file__).with_name("tables.txt").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("rule", "line", "table"), [
    pytest.param(*case, id=f"{name}: {case[0] or 'right'}") for name, *case in CASES])
def test_the_mistake_of_a_table_is_found_and_nothing_in_a_right_one(rule, line, table, tmp_path):
    (tmp_path / "typed.csv").write_text(table)
    found = checker.check_csv(tmp_path / "typed.csv")
    if rule:
        assert (rule, int(line)) in {(finding.rule, row) for finding in found for row in finding.rows}
    else:
        assert [str(finding) for finding in found] == []


def test_no_table_is_skipped():
    assert len(CASES) == Path(__file__).with_name("tables.txt").read_text().count("\n== ") > 150
