"""The cheat sheet: one page, inside its margins; its lines, formulas and commands are the kit's."""

from __future__ import annotations

import importlib
import re
import shlex

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from labs.cli import commands
from labs.run.paths import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def sheet(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "site")
    return importlib.import_module("cheat_sheet")


def test_the_ten_lines_are_those_that_lab_2_adds(sheet):
    lines = sheet.ten_lines()
    assert len(lines) == 10
    assert (ROOT / "solutions/train.py").read_text().count("# Horovod:") == 10
    assert not [code for code, _ in lines if code in (ROOT / "examples/plain/train.py").read_text()]


def test_every_formula_is_the_kits(sheet):
    for _, _, function in sheet.FORMULAS:
        module, _, name = function.rpartition(".")
        assert callable(getattr(importlib.import_module(module), name)), function


def test_every_command_exists(sheet):
    words = [shlex.split(line) for line in sheet.COMMANDS]
    assert {line[1] for line in words if line[0] == "labs"} <= {*commands.summaries(), *commands.tools()}
    assert all((ROOT / word).is_file() for line in words for word in line if word.startswith("jobs/"))


def test_all_text_is_inside_the_margins_and_overlaps_nothing(sheet):
    with sheet.mpl.rc_context(sheet.STYLE):
        figure = sheet.draw()
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        boxes = [(text.get_text(), text.get_window_extent()) for text in figure.texts]
    width, height = (side * figure.dpi for side in sheet.INCHES)
    margin = 0.25 * figure.dpi  # Inches: what printers leave white.
    for index, (text, box) in enumerate(boxes):
        assert margin <= box.y0 <= box.y1 <= height - margin, text
        assert margin <= box.x0 <= box.x1 <= width - margin, text
        inner = box.padded(-1)
        assert not [other for other, place in boxes[index + 1:] if inner.overlaps(place.padded(-1))], text


def test_the_committed_files_are_up_to_date_and_small(sheet, tmp_path):
    sheet.save(tmp_path)
    for suffix in ("svg", "pdf"):
        assert (ROOT / f"docs/cheat-sheet.{suffix}").stat().st_size < 300_000
    new, old = ((folder / "cheat-sheet.svg").read_text() for folder in (tmp_path, ROOT / "docs"))
    assert re.findall("<!-- (.*) -->", new) == re.findall("<!-- (.*) -->", old), "run site/cheat_sheet.py again"
    assert (ROOT / "docs/cheat-sheet.pdf").read_bytes().count(b"/Type /Page ") == 1
