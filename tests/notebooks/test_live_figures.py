"""Sentences on times that a page measures while it runs hold for the outputs that are committed.

The pages do not assert such times: on a busy machine they may be different, and the page prints what it measured.
"""

from __future__ import annotations

import re

from tests.notebooks import committed


def sentence(lab: str, cell_id: str) -> str:
    """Return the Markdown that a cell of a committed notebook shows."""
    (cell,) = (cell for cell in committed.cells(lab) if cell.get("id") == cell_id)
    return "".join("".join(output.get("data", {}).get("text/markdown", "")) for output in cell["outputs"])


def test_lab_5_says_what_its_steps_over_time_show():
    pattern = r"takes (\d+) ms; with overlap (\d+), \*\*(\d+)% less.* takes (\d+) ms, .* first all-reduce (\d+):"
    said = re.search(pattern, sentence("lab05_allreduce", "px05said"))
    after, overlap, less, late, waits = map(int, said.groups())
    assert overlap < after
    assert less == round(100 * (1 - overlap / after))
    assert late > overlap + 20
    assert waits > 20


def test_lab_5_says_what_fusion_saves():
    figures = re.findall(r"\d+\.\d", sentence("lab05_allreduce", "5d5b67ca"))
    fused, alone, times = map(float, figures)
    assert 1 < times == round(alone / fused, 1)
