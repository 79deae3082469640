"""The Python blocks of a page run as one program and print what the page shows below each."""

from __future__ import annotations

import contextlib
import io
import re

import pytest

from labs.run.paths import ROOT

PAGES = ("at-scale", "how-we-measure")


@pytest.mark.parametrize("name", PAGES)
def test_each_block_prints_what_the_page_shows(name):
    page = (ROOT / f"docs/{name}.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```\n+```\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == page.count("```python") >= 4
    names: dict[str, object] = {}
    for program, shown in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(program, names)
        assert output.getvalue() == shown, program
