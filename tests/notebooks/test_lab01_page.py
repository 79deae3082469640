"""The committed page of lab 1: its sentences follow from its tables, and its tables from measured steps.

Reads the notebook's JSON; nothing is run.
"""

from __future__ import annotations

import ast
import re

import numpy as np
import pytest

from labs.course import proportions, step_cost
from labs.run.paths import ROOT
from tests.notebooks.committed import Page, cell, cells, printed, prose, table

LAB = "lab01_baseline"
IMAGES = 1024


def shown(column: str) -> dict[int, dict[str, float]]:
    """Return the rows of the one table with a column, by batch size."""
    tables = [table(each) for each in cells(LAB)
              if any("text/html" in output.get("data", {}) for output in each.get("outputs", []))]
    (rows,) = [rows for rows in tables if all(column in row for row in rows.values())]
    return {int(size): {name: float(value) for name, value in row.items()} for (size,), row in rows.items()}


def steps() -> tuple[np.ndarray, np.ndarray]:
    """Return the batch sizes, and the milliseconds of their steps: from the throughput, which has more digits."""
    rows = shown("ms_per_step")
    return np.array(list(rows)), np.array([1000 * batch / row["images_per_sec"] for batch, row in rows.items()])


def fitted() -> dict[str, tuple[float, float, float]]:
    """Return a and c as printed, with their intervals, in ms."""
    matches = re.findall(r"^([ac]) = (\S+) ms(?: per image)?, 95 % interval (\S+) to (\S+)$",
                       printed(cell(LAB, "step_cost.fit(")), re.MULTILINE)
    return {name: tuple(map(float, values)) for name, *values in matches}


def test_all_batches_are_full_so_that_a_step_is_measured():
    """1000 b / images_per_sec of padded batches, taken for a step, gave a line with a < 0."""
    rows = shown("ms_per_step")
    assert len(rows) >= 5
    for batch, row in rows.items():
        assert IMAGES % batch == 0
        assert row["images_per_sec"] == pytest.approx(1000 * batch / row["ms_per_step"], rel=0.01)
    parameters = next(each for each in cells(LAB) if "parameters" in each["metadata"].get("tags", []))
    assert f"images = {IMAGES} " in "".join(parameters["source"])


def test_the_printed_cost_is_the_line_through_the_table():
    cost, values = step_cost.fit(*steps()), fitted()
    for name, estimate in zip("ac", cost, strict=True):
        assert values[name] == pytest.approx(tuple(estimate), rel=0.05, abs=0.02)
    assert values["a"][0] > 0
    assert "max difference to the fit by hand: 0.0 s\n" in printed(cell(LAB, "step_cost.fit("))


def test_the_line_predicts_a_batch_size_that_it_has_not_seen():
    batches, milliseconds = steps()
    assert batches[-1] == max(batches)
    cost = step_cost.fit(batches[:-1], milliseconds[:-1])
    predicted, measured, off = map(float, re.search(
        r"a step of 1,024 images: (\d+) ms by the line,\n(\d+) ms measured, ([+-][\d.]+)%",
        printed(cell(LAB, "by the line"))).groups())
    assert (predicted, measured) == pytest.approx((cost.seconds(1024), milliseconds[-1]), abs=2)
    assert off == pytest.approx(100 * (measured / predicted - 1), abs=1)
    others = re.search(r"the other points are at most ([\d.]+)% from the line", printed(cell(LAB, "by the line")))
    farthest = abs(milliseconds[:-1] / cost.seconds(batches[:-1]) - 1).max()
    assert float(others[1]) == pytest.approx(100 * farthest, abs=0.5)


def test_the_figure_is_read_as_the_table_says():
    (a, *_), (c, low, _) = fitted()["a"], fitted()["c"]
    message, rows = printed(cell(LAB, "farthest from the line")), shown("ms_per_step")
    for batch in (8, 1024):
        share, images_per_sec = re.search(
            rf"batch size {batch:,}: ([\d.]+)% of a step is the fixed cost, ([\d,]+) images/s", message).groups()
        assert float(share) == pytest.approx(100 * a / (a + c * batch), abs=0.3)
        assert float(images_per_sec.replace(",", "")) == pytest.approx(rows[batch]["images_per_sec"], abs=1)
    gain = rows[1024]["images_per_sec"] / rows[8]["images_per_sec"]
    assert float(re.search(r"128 times the batch, ([\d.]+) times the throughput", message)[1]) == pytest.approx(
        gain, abs=0.06)
    batch, times, verdict = re.search(r"fastest: batch size ([\d,]+), ([\d.]+) times 1/c, (.*)", message).groups()
    fastest = max(row["images_per_sec"] for row in rows.values())
    assert rows[int(batch.replace(",", ""))]["images_per_sec"] == fastest
    assert float(times) == pytest.approx(fastest * c / 1000, abs=0.02)
    assert (verdict == "more than the formula allows") == (fastest * low / 1000 > 1)


def test_utilization_is_set_beside_throughput_and_beside_report_m():
    (a, *_), (c, *_) = fitted()["a"], fitted()["c"]
    rows = table(cell(LAB, "report M: GPU busy"))
    answer = {name: {size: float(value) for size, value in row.items()} for (name,), row in rows.items()}
    assert answer["report M: GPU busy, %"] == {"128": 20, "1024": 54}
    assert answer["report M: by b / (b + 512), %"] == {"128": 20, "1024": 67}
    for size in ("128", "1024"):
        assert answer[f"here: by b / (b + {a / c:.0f}), %"][size] == pytest.approx(
            100 * int(size) / (int(size) + a / c), abs=1.5)
        assert answer["here: images/s"][size] == pytest.approx(shown("ms_per_step")[int(size)]["images_per_sec"], abs=1)
    message = printed(cell(LAB, "report M: GPU busy"))
    least, most, grew = map(float, re.search(
        r"cpu_percent: (\d+) % at 8, (\d+) % at 1,024, so ([\d.]+) times", message).groups())
    assert grew == pytest.approx(most / least, rel=0.05)


def test_steps_per_execution_is_measured_and_judged_by_its_interval():
    rows = table(cell(LAB, "steps_per_execution=n"))
    assert len(rows) >= 5, "an interval needs repeats"
    assert all(list(row) == ["1", "8", "32"] for row in rows.values())
    message = printed(cell(LAB, "weights differ by at most"))
    assert message.count("weights differ by at most 0 from") == 2
    verdicts = re.findall(r"([\d.]+) times as fast, 95 % interval ([\d.]+) to ([\d.]+): (.*)", message)
    assert len(verdicts) == 2
    for times, low, high, verdict in verdicts:
        assert float(low) <= float(times) <= float(high)
        if "1.00" not in (low, high):  # Rounded: it may be more or less than 1.
            assert (verdict == "no difference shown") == (float(low) <= 1 <= float(high)), verdict


def test_the_kits_loop_is_compared_with_the_one_by_hand_by_an_interval():
    message = printed(cell(LAB, "statistics.ratio(kit, hand)"))
    low, high, verdict = re.search(r"is ([\d.]+) to ([\d.]+) times that by hand \(95 % interval\):(.*)",
                                   message).groups()
    assert (verdict == " no difference shown") == (float(low) <= 1 <= float(high))


def test_fewer_updates_learn_less_and_neighbours_differ_by_noise():
    accuracy = {size: row["test_accuracy"] for size, row in shown("updates").items()}
    for one, other in ((8, 32), (32, 128), (128, 256)):
        assert abs(proportions.difference(accuracy[other], accuracy[one], 359)) <= proportions.NOISE
    assert all(proportions.difference(accuracy[n], accuracy[8], 359) < -proportions.NOISE for n in (256, 512, 1024))


def test_steps_are_counted_and_the_remainder_is_explained():
    text = " ".join(prose(cells(LAB)).split())
    assert "18,760 steps in 40 epochs; your guess: None" in printed(cell(LAB, "guess_steps"))
    assert r"40 \times 60000 / 128 = 18750" in text
    assert "468 full batches and one of 96 images" in text


def test_the_full_run_follows_from_the_cost_of_a_step():
    (a, *_), (c, *_) = fitted()["a"], fitted()["c"]
    rows = table(cell(LAB, "report M, one GPU"))
    own, reported = ({name: float(value) for name, value in rows[key].items()}
                     for key in (("here, by a + c b",), ("report M, one GPU",)))
    assert own["ms per step"] == pytest.approx(a + 128 * c, rel=0.01)
    assert own["minutes"] == pytest.approx(18_760 * own["ms per step"] / 60_000, abs=0.1)
    assert (reported["ms per step"], reported["minutes"]) == (24.3, 7.6)
    assert "a fifth of the 24.3 ms per step" in prose(cells(LAB))
    assert pytest.approx(6, abs=0.1) == 7.6 * 19.4 / 24.3
    assert "about six of its 7.6 minutes" in prose(cells(LAB))


def test_an_epoch_is_predicted_before_it_is_measured():
    message = printed(cell(LAB, "guess_seconds"))
    predicted, measured, off = re.search(r"12 steps x [\d.]+ ms = ([\d.]+) s\nmeasured ([\d.]+) s, ([+-]\d+)%",
                                         message).groups()
    assert int(off) == pytest.approx(100 * (float(measured) / float(predicted) - 1), abs=1.5)


def test_each_experiment_asks_for_a_guess_first():
    guesses = re.findall(r"^(guess_\w+) = (\w+)", Page(LAB).code, re.MULTILINE)
    assert {value for _, value in guesses} == {"None"}
    assert len(guesses) == len(dict(guesses)) >= 5
    asking = [each for each in cells(LAB) if re.search(r"^guess_\w+ = None", "".join(each["source"]), re.MULTILINE)]
    assert prose(cells(LAB)).count("**Predict:**") == len(asking)


def test_the_questions_are_a_ladder():
    text = prose(cells(LAB)).partition("## Questions\n")[2].partition("## Write it yourself")[0]
    ladder = {heading: len(re.findall(r"^\d+\. ", part, re.MULTILINE))
              for heading, part in re.findall(r"^\*([\w, ]+)\*\n(.*?)(?=^\*|\Z)", text, re.MULTILINE | re.DOTALL)}
    assert ladder == {"Recall": 5, "Predict, then run": 3, "Debug": 1, "Design": 1}


def test_the_friends_line_is_impossible_and_the_measured_one_is_not():
    """Question 9, as the rubric answers it."""
    text = " ".join(prose(cells(LAB)).split())
    match = re.search(r"([\d, ]+) and (\d+) images/s at batch sizes 8, 32, 128 and 1024", text)
    images_per_sec = np.array([float(each) for each in (*match[1].split(","), match[2])])
    batches = np.array([8, 32, 128, 1024])
    friend = 1000 * batches / images_per_sec
    measured = 1000 * 1438 / images_per_sec / np.ceil(1438 / batches)
    assert np.polyfit(batches, friend, 1)[1] == pytest.approx(-3.4, abs=0.05)
    assert np.polyfit(batches, [*friend[:-1], measured[-1]], 1)[1] == pytest.approx(6.8, abs=0.05)
    assert step_cost.fit(batches, measured).fixed.value == pytest.approx(5.5, abs=0.05)
    rubric = " ".join((ROOT / "solutions/rubric.md").read_text().split())
    assert "a = -3.4 ms" in rubric
    assert f"{friend[-1]:.0f} ms" in rubric
    assert f"{measured[-1]:.0f} ms" in rubric


def test_prose_states_no_time_of_the_machine_that_made_the_page():
    """Times in prose are report M's, or invented; those of this machine are printed by cells."""
    text = prose(cells(LAB)).partition("## Questions\n")[0]
    assert set(re.findall(r"[\d.]+ (?:ms|minutes)\b", text)) == {"24.3 ms", "4.9 ms", "19.4 ms", "7.6 minutes"}


def test_code_is_no_wider_than_a_page():
    for each in cells(LAB):
        if each["cell_type"] == "code":
            ast.parse("".join(each["source"]))
            if "exercises" not in each["metadata"].get("tags", []):
                assert max(map(len, "".join(each["source"]).splitlines())) <= 88
