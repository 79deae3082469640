"""The Python blocks of docs/at-scale.md run as one program and print what the page shows below each."""

from __future__ import annotations

import contextlib
import io
import re

from labs.run.paths import ROOT

PAGE = (ROOT / "docs/at-scale.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```\n+```\n(.*?)```", PAGE, re.DOTALL)
"""Program and output of each block."""


def test_each_block_prints_what_the_page_shows():
    assert len(BLOCKS) == PAGE.count("```python") >= 5
    names: dict[str, object] = {}
    for program, shown in BLOCKS:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(program, names)
        assert output.getvalue() == shown, program
