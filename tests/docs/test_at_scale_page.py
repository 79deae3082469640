"""The Python blocks of docs/at-scale.md run as one program and print what the page shows below each."""

from __future__ import annotations

import contextlib
import functools
import io
import re

import pytest

from labs.run.paths import ROOT

PAGE = (ROOT / "docs/at-scale.md").read_text()
BLOCK = r"```python\n(.*?)```\n+```\n(.*?)```"
BLOCKS = re.findall(BLOCK, PAGE, re.DOTALL)
"""Program and output of each block."""


@functools.cache
def printed() -> list[str]:
    """Return what the blocks print, in the page's order; each sees the names of those before it."""
    names: dict[str, object] = {}
    outputs = []
    for program, _ in BLOCKS:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(program, names)
        outputs.append(output.getvalue())
    return outputs


def test_every_block_of_the_page_has_its_output():
    assert len(BLOCKS) == PAGE.count("```python") >= 5
    assert len(BLOCKS) * 4 == PAGE.count("```")


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_a_block_prints_what_the_page_shows(block):
    assert printed()[block] == BLOCKS[block][1]
