"""The committed pages of labs 1 to 4: their sentences follow from their tables, their tables from what was measured.

Reads the notebooks' JSON; nothing is run.
"""

from __future__ import annotations

import html
import json
import re

import pandas as pd
import pytest

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


# Lab 4.

def test_lab04_divides_one_fixed_amount_in_every_row():
    shown = table("lab04", "seconds_x_reported_mb")
    reference = pd.read_csv(ROOT / "data/reference/lab04_speedup.csv").dropna(subset="comm_seconds_as_reported")
    divided = 1000 * reference["comm_seconds_as_reported"] * reference["bandwidth_gb_per_sec_as_reported"]
    assert list(shown["seconds_x_reported_mb"]) == pytest.approx(list(divided), abs=0.01)
    assert divided.round(1).unique().tolist() == [178.0]
    gradients = shown["gradients_mb"]
    assert gradients.max() > 30 * gradients.min()
    assert "**178 MB in every row**, for 782 steps as for 25" in prose("lab04")
    first, last = gradients.iloc[0] / 1000, gradients.iloc[-1] / 1000
    assert f"{first:.0f} GB in the first row and {last:.1f} GB in the last" in prose("lab04")


def test_lab04_does_not_call_a_speed_impossible_that_nvlink_reaches():
    shown = table("lab04", "gradients_gb_per_sec")["gradients_gb_per_sec"].max()
    assert shown < 370, "NVLink between two H100s (nccl-tests, issue 212)"
    assert "No link" not in prose("lab04")


def test_lab04_names_the_largest_excess_of_its_ledger():
    shown = table("lab04", "why")
    message = printed("lab04", "scaling.excess").splitlines()
    assert len(message) == len(shown[shown["size"] > 1])
    for line in message:
        batch, took, ideal, largest, parts = re.fullmatch(
            r"batch (\d+): ([\d.]+) s .*, ideally ([\d.]+) s\. The largest excess is (\w+): (.*)", line).groups()
        excess = {name: float(seconds) for name, seconds in re.findall(r"(\w+) ([+-][\d.]+) s", parts)}
        assert set(excess) == {"compute", "communication", "input", "other"}
        assert excess[largest] == max(excess.values())
        assert sum(excess.values()) == pytest.approx(float(took) - float(ideal), abs=0.004)
        assert int(batch) in set(shown["batch_size"])
