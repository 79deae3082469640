"""The committed pages of labs 1 to 4: their sentences follow from their tables, their tables from what was measured.

Reads the notebooks' JSON; nothing is run.
"""

from __future__ import annotations

import ast
import html
import json
import re

import pandas as pd
import pytest

from labs.results import proportions
from labs.run import catalogue
from labs.run.paths import ROOT


def cells(lab: str) -> list[dict]:
    return json.loads((ROOT / f"notebooks/{catalogue.resolve(lab)}.ipynb").read_text())["cells"]


def source(cell: dict) -> str:
    return "".join(cell["source"])


def code(lab: str) -> str:
    return "\n".join(source(cell) for cell in cells(lab) if cell["cell_type"] == "code")


def prose(lab: str) -> str:
    return " ".join(" ".join(source(cell) for cell in cells(lab) if cell["cell_type"] == "markdown").split())


def printed(lab: str, part: str) -> str:
    """Return what the one cell that has `part` in its source printed."""
    (cell,) = [each for each in cells(lab) if each["cell_type"] == "code" and part in source(each)]
    return "".join("".join(output.get("text", "")) for output in cell["outputs"])


def table(lab: str, column: str) -> pd.DataFrame:
    """Return the one displayed table that has a column, by its first column."""
    outputs = [output for cell in cells(lab) for output in cell.get("outputs", [])]
    pages = ["".join(output["data"]["text/html"]) for output in outputs if "text/html" in output.get("data", {})]
    (page,) = [page for page in pages if f"<th>{column}</th>" in page.split("</thead>")[0]]
    head, body = page.split("</thead>")
    names = re.findall(r"<th>(.*?)</th>", head.split("</tr>")[0])
    rows = [[html.unescape(value) for value in re.findall(r"<t[hd]>(.*?)</t[hd]>", row)] for row in body.split("</tr>")]
    frame = pd.DataFrame([row for row in rows if row], columns=["", *names[-(len(rows[0]) - 1):]]).set_index("")
    return frame.replace("", None).apply(pd.to_numeric)


# Lab 3.

def test_lab03_runs_every_preset_on_its_own_number_of_workers():
    """`paper` is report C's experiment on four workers only if nothing on the page says two."""
    tree = ast.parse(code("lab03"))
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and "batch_size" in ast.unparse(node):
            assert not isinstance(node.left, ast.Constant), ast.unparse(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"local.run", "lab.learning_rate"}:
            assert "workers" in ast.unparse(node.args[-1]) or "workers=workers" in ast.unparse(node), ast.unparse(node)
    assert "lab.WORKERS[preset]" in code("lab03")


def test_lab03_says_of_its_seeds_and_of_noise_what_its_tables_show():
    seeds, ends = table("lab03", "linear, warmup"), table("lab03", "val_accuracy")
    assert len(seeds) >= 3
    assert (seeds["linear, warmup"] > seeds["linear"]).all()
    message = printed("lab03", "proportions.compared")
    low, high, warm_low, warm_high = (float(each) for each in re.search(
        r"seeds: ([\d.]+) to ([\d.]+); with warmup: ([\d.]+) to ([\d.]+);", message).groups())
    for name, ends_of in (("linear", (low, high)), ("linear, warmup", (warm_low, warm_high))):
        assert ends_of == pytest.approx((seeds[name].min(), seeds[name].max()), abs=0.006), name
    images = 398
    verdict_of = r"^{} and {}: .* differ by ([\d.]+) standard errors: (.*)$"
    for one, other in (("linear, warmup", "no scaling"), ("linear, warmup", "sqrt"), ("small batch", "linear, warmup")):
        (verdict,) = re.findall(verdict_of.format(one, other), message, re.MULTILINE)
        shown = abs(proportions.difference(*ends["val_accuracy"][[one, other]], images))
        assert float(verdict[0]) == pytest.approx(shown, abs=0.1)
        assert (verdict[1] == "within noise") == (float(verdict[0]) <= 2)


def test_lab03_types_no_measured_figure_into_its_prose():
    (text,) = [source(cell) for cell in cells("lab03") if source(cell).startswith("* **No scaling** learns")]
    assert not re.findall(r"\b0\.\d\d", text), "an accuracy that the next run will not repeat"
