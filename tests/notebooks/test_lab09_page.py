"""What the committed page of lab 9 says about its runs is what its runs show."""

from __future__ import annotations

import re

import pytest

from labs.course import proportions
from labs.run.paths import ROOT
from tests.notebooks import committed as page

VERDICT = re.compile(r"(0\.\d+) and (0\.\d+) differ by (\S+) standard errors: (within noise|more than noise)")


@pytest.fixture(scope="module")
def cells():
    return page.cells("lab09_fruits")


@pytest.fixture(scope="module")
def images(cells) -> int:
    return int(re.search(r"(\d+) test images", page.output(cells, "fruits = splits."))[1])


def test_each_run_is_judged_with_running_and_with_recomputed_statistics(cells, images):
    """The drop of several workers is explained: the weights are right, the running statistics lag behind them."""
    output = page.output(cells, "judged = ").splitlines()
    both = [VERDICT.search(line) for line in output if "with running and with recomputed statistics" in line]
    assert len(both) == 4
    lagging = [result for result in both if result[4] == "more than noise"]
    assert lagging
    assert all(float(result[2]) > float(result[1]) for result in lagging), "recomputed statistics are better"
    learnt = [VERDICT.search(line) for line in output if line.endswith("noise") and "both recomputed" in line]
    assert len(learnt) == 3
    for one, other, errors, verdict in (result.groups() for result in (*both, *learnt)):
        # Printed accuracies have three digits.
        assert abs(proportions.difference(float(one), float(other), images)) == pytest.approx(float(errors), abs=0.1)
        assert (verdict == "within noise") == (float(errors) <= proportions.NOISE)


def test_the_learning_rates_of_report_f_are_compared_over_seeds(cells):
    output = page.output(cells, "over_seeds.compared(")
    # The accuracy that a report gives. The training accuracies are closer: their interval may reach 0.
    result = re.search(r"^test, running statistics, learning rates 0.0005 and 0.1: means .* differ by (\S+), "
                       r"95 % interval (\S+) to (\S+): more than the noise of the seeds$", output, re.MULTILINE)
    assert result, "the experiment does not show that these learning rates differ"
    difference, low, high = map(float, result.groups())
    assert low < difference < high
    assert low * high > 0


def test_a_leak_is_announced_once_and_not_for_a_false_alarm(cells):
    outputs = "".join(str(cell.get("outputs")) for cell in cells)
    assert outputs.count("leak check:") == 1
    assert "partly memory" not in outputs


def test_readmes_picture_shows_the_workers_that_its_text_names(cells):
    alt = re.search(r'lab09_fruits\.png"[^>]*alt="([^"]+)"', (ROOT / "README.md").read_text())[1]
    named = {int(number) for number in re.findall(r"\d+", alt)}
    (code,) = ["".join(cell["source"]) for cell in cells if "picture" in cell["metadata"].get("tags", [])]
    assert "curves(list(runs.values())" in code
    ran = re.findall(r"lab09_fruits: (\d+) workers?", page.output(cells, "runs = {"))
    assert named == set(map(int, ran))
