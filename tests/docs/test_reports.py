"""docs/five-reports.md: its tables come from data/reference, and its text has the figures that follow from them."""

from __future__ import annotations

import re
import runpy

import pytest

from labs.pages import laws
from labs.run.paths import ROOT

PAGE = (ROOT / "docs/five-reports.md").read_text()


@pytest.fixture(scope="module")
def program() -> dict:
    return runpy.run_path(str(ROOT / "notebooks/reports.py"))


def section(letter: str) -> str:
    return re.sub(r"\s+", " ", re.split(r"(?m)^## Report ", PAGE)["FMCTA".index(letter) + 1])


def test_the_page_has_what_the_program_makes(program):
    assert program["page"](PAGE) == PAGE, "`python notebooks/reports.py` writes it"


def test_a_section_per_report_with_all_that_the_program_makes(program):
    assert re.findall(r"(?m)^## (.*)$", PAGE) == [f"Report {letter}" for letter in "FMCTA"]
    made = re.findall(r"<!-- made: (\w+) -->", PAGE)
    assert sorted(made) == sorted([*program["TABLES"], *program["SENTENCES"], *program["LINTED"]])


def test_report_m_in_words(program):
    seconds = program["read"]("lab02_mnist_accuracy").dropna(subset="train_seconds")["train_seconds"].tolist()
    text = section("M")
    assert f"T(4) / T(2) = {seconds[2] / seconds[1]:.3f}" in text
    assert text.count(f"{seconds[1] / seconds[2]:.2f} times as") == 2
    assert f"E = {seconds[0] / seconds[3] / 2:.1f}" in text
    step = program["step_of_mnist"]()
    assert f"{step[2] - step[1]:.1f} to {step[4] - step[1]:.1f} ms" in text
    assert f"would take {step[2] / step[1]:.2f} times the mean" in text
    assert f"At 20 % of {step[1]:.1f} ms a kernel ran for {0.2 * step[1]:.1f} ms" in text


def test_report_c_in_words(program):
    rows, text = program["cifar"](), section("C")
    step = rows.set_index(["b", "N"])["step"]
    assert f"{step[32, 4] - step[32, 1]:.1f} to {step[512, 4] - step[512, 1]:.1f} ms" in text
    slowest = step.xs(4, level="N") / step.xs(1, level="N")
    assert f"{slowest.min():.1f} to {slowest.max():.1f} times the mean" in text
    compute = rows["compute"] / rows["epoch"] * rows["step"]
    on_two = compute[rows["N"] == 2]
    assert f"{on_two.min():.0f} to {on_two.max():.0f} ms per step" in text
    assert f"{step[32, 1]:.0f} to {step[512, 1]:.0f} ms" in text
    assert f"takes {782 * program['RESNET18'] / 1.25e9:.0f} s" in text
    assert f"up to {100 * (1 - (rows['compute'] + rows['comm']) / rows['epoch']).max():.0f} %" in text
    assert f"{4 * program['RESNET18'] / 1e6:.1f} MB" in text


def test_report_a_in_words():
    amdahl, gustafson = laws.amdahl_share(8, 7.0), laws.gustafson_share(8, 7.0)
    words = f"law gives {laws.amdahl(64, amdahl):.0f} on 64 nodes, Gustafson's {laws.gustafson(64, gustafson):.0f}"
    assert words in section("A")
