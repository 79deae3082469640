"""The committed page of lab 3: its sentences follow from its tables, and its tables from the records."""

from __future__ import annotations

import ast
import json
import math
import re

import numpy as np
import pandas as pd
import pytest

from labs import lab03_lr_scaling as lab
from labs.course import proportions
from labs.results import records, reference, statistics
from labs.run.paths import ROOT
from tests.notebooks import committed

LAB = "lab03_lr_scaling"
DEMO, LAPTOP = lab.PRESETS["demo"], lab.PRESETS["laptop"]
TWO_CORES = reference.read_all("two-cores", LAB)
CIFAR10 = [run for run in TWO_CORES if run["config"]["data"] == "real"]
SETTINGS = {"1 x 128": (1, "none", 0), "4 x 512, no scaling": (4, "none", 0), "4 x 512, square root": (4, "sqrt", 0),
            "4 x 512, linear": (4, "linear", 0), "4 x 512, linear, warmup": (4, "linear", 2)}
C4_1 = {name: [run for run in CIFAR10 if run["config"]["base_lr"] == LAPTOP.base_lr and wanted == (
    run["layout"]["size"], run["config"]["scaling"], run["config"]["warmup_epochs"])]
    for name, wanted in SETTINGS.items()}


def printed(fragment: str) -> str:
    return committed.printed(committed.cell(LAB, fragment))


def table(fragment: str) -> dict[tuple[str, ...], dict[str, str]]:
    return committed.table(committed.cell(LAB, fragment))


def prose() -> str:
    return " ".join(committed.prose(committed.cells(LAB)).split())


def last(name: str, column: str) -> list[float]:
    """Return the last epoch's value of a setting of C4.1, one per seed."""
    return [run["history"][-1][column] for run in C4_1[name]]


def test_the_large_step_of_the_picture_fails_where_the_text_says():
    across = {k: (0.84**k, 1 - 0.16 * k) for k in (4, 8, 16)}
    assert abs(across[4][1] - across[4][0]) < 0.15, "about the same place"
    assert across[8][1] < 0 < across[8][0], "crosses the valley"
    start, end = (0.5 * ((-2 * (1 - 0.02 * k)) ** 2 + 8 * (1 - 0.16 * k) ** 2) for k in (0, 16))
    assert end > start, "higher than it began"
    assert "that is $k > 12.5$" in prose()
    assert 2 / (8 * 0.02) == 12.5


def test_the_large_step_misses_and_then_does_harm():
    half, harm = (int(re.search(pattern, printed("first misses"))[1])
                  for pattern in (r"of the distance at k = (\d+)", r"than before at k = (\d+)"))
    assert 1 < half < harm <= 128


def test_noise_falls_by_about_eight():
    assert float(re.search(r"by the factor ([\d.]+)", printed("np.polyfit"))[1]) == pytest.approx(8, rel=0.25)


def test_the_search_is_that_of_the_records():
    rows = table('tried = search.groupby')
    for (data, base_lr), row in rows.items():
        runs = [run for run in TWO_CORES if run["layout"]["global_batch_size"] == run["config"]["base_batch_size"]
                and run["config"]["data"] == {"demo": "embedded", "CIFAR-10": "real"}[data]
                and run["config"]["base_lr"] == float(base_lr)]
        assert len({run["config"]["seed"] for run in runs}) == len(runs) == int(row["count"])
        accuracies = [run["history"][-1]["val_accuracy"] for run in runs]
        for column, value in (("mean", np.mean(accuracies)), ("min", min(accuracies)), ("max", max(accuracies))):
            assert float(row[column]) == pytest.approx(value, abs=0.0006)
    for data, base_lr, images in (("demo", DEMO.base_lr, 398), ("CIFAR-10", LAPTOP.base_lr, 2997)):
        means = {float(tried): float(row["mean"]) for (name, tried), row in rows.items() if name == data}
        best = max(means, key=lambda tried: means[tried])
        assert min(means) < best < max(means), "the search must enclose the best"
        assert abs(proportions.difference(means[best], means[base_lr], images)) < proportions.NOISE
    assert proportions.difference(means[0.03], means[0.1], 2997) < proportions.NOISE, "within the noise of it"
    assert means[0.03] > means[0.1] > means[0.01] > means[0.3] + 0.2, "far too high"


def test_the_schedule_by_hand_is_the_kits():
    assert "max difference to the kit's Warmup: 0.0\n" in printed("def by_hand")
    first, middle, top = map(float, re.search(r"step 0: (\S+), step 19: (\S+), step 39: (\S+);",
                                              printed("def by_hand")).groups())
    assert (first, top) == (DEMO.base_lr, 32 * DEMO.base_lr)
    assert middle == pytest.approx(first + (top - first) * 19 / 39, rel=0.001)


def test_linear_without_warmup_begins_worse_than_guessing():
    losses = [float(each) for each in re.search(r"loss by epoch: ([\d. ]+)", printed("def train(config)"))[1].split()]
    assert losses[0] > math.log(10)


def test_one_worker_takes_the_steps_of_two():
    one, two = ([float(each) for each in line.split("loss by epoch: ")[1].split()]
                for line in printed("alone = lab.run(").splitlines())
    assert len(one) == DEMO.epochs
    assert one == pytest.approx(two, rel=0.01)


def test_the_page_runs_every_preset_on_its_own_number_of_workers():
    """`paper` is report C's experiment on four workers only if nothing on the page says two."""
    code = "\n".join("".join(cell["source"]) for cell in committed.cells(LAB) if cell["cell_type"] == "code")
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and "config.batch_size" in ast.unparse(node):
            assert ast.unparse(node) == "workers * config.batch_size"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"resident.start", "lab.learning_rate"}:
            assert ast.unparse(node.args[-1]) == "workers"
    assert "workers = lab.WORKERS[preset] if workers is None else workers" in code


def is_pair(line: str) -> bool:
    return line.endswith(":") and not line.startswith(" ")


def test_verdicts_on_the_rules_follow_from_the_table_of_seeds():
    rows = table("seeds_of = ends")
    accuracy = {name: [float(value) for column, value in row.items() if column.startswith("seed")]
                for (name,), row in rows.items()}
    assert list(accuracy) == ["small batch", "no scaling", "square root", "linear", "linear, warmup"]
    assert all(len(each) == 3 for each in accuracy.values())
    means = {name: np.mean(each) for name, each in accuracy.items()}
    assert all(warm > cold for warm, cold in zip(accuracy["linear, warmup"], accuracy["linear"], strict=True))
    for (name,), row in rows.items():
        steps = math.ceil(1602 / (4 if name == "small batch" else 128))
        assert int(row["updates"]) == 7 * steps
        assert float(row["mean"]) == pytest.approx(means[name], abs=0.001)
    lines = printed('warm = "linear, warmup"').splitlines()
    assert len([line for line in lines if is_pair(line)]) == 4
    for number, line in enumerate(lines):
        if is_pair(line):
            one, other = line.removesuffix(":").split(" and ")
            assert f"means {means[one]:.2f}"[:-1] in lines[number + 1]
            _, low, high = statistics.difference(accuracy[one], accuracy[other])
            if min(abs(low), abs(high)) > 0.003:
                assert ("cannot tell" in lines[number + 2]) == (low <= 0 <= high)
            errors = abs(proportions.difference(means[one], means[other], 398))
            shown = re.search(r"differ by ([\d.]+) standard", lines[number + 3])
            assert float(shown[1]) == pytest.approx(errors, abs=0.1)
    regained = (means["linear, warmup"] - means["no scaling"]) / (means["small batch"] - means["no scaling"])
    assert int(re.search(r"regains (\d+)%", lines[-2])[1]) == pytest.approx(100 * regained, abs=2)


def test_the_text_about_live_runs_types_no_measured_figure():
    (text,) = ["".join(cell["source"]) for cell in committed.cells(LAB)
               if "Read your own lines above against this" in "".join(cell["source"])]
    live = text.partition("## C4.1")[0]
    assert not re.findall(r"\b0\.\d\d", live), "an accuracy that the next run will not repeat"


def test_the_reference_runs_of_c4_1_are_the_laptop_preset():
    for name, runs in C4_1.items():
        assert sorted(run["config"]["seed"] for run in runs) == [1, 2, 3], name
        for run in runs:
            same = ("images", "model", "epochs", "base_batch_size", "optimizer", "momentum", "validation_split")
            assert {each: run["config"][each] for each in same} == {each: getattr(LAPTOP, each) for each in same}
            assert run["config"]["batch_size"] == (128 if name == "1 x 128" else 512)
            assert len(run["history"]) == 5
    for run in TWO_CORES:
        assert "/" not in json.dumps(run["config"])


def test_c4_1_is_answered_by_the_records_beside_the_reports_figures():
    rows = table('names = {"loss": "train_loss"')
    columns = {"train_loss": "loss", "train_accuracy": "accuracy", "val_loss": "val_loss",
               "val_accuracy": "val_accuracy"}
    for name, runs in C4_1.items():
        shown = rows[name,]
        assert int(shown["updates"]) == sum(row["steps"] for row in runs[0]["history"])
        for column, recorded in columns.items():
            values = last(name, recorded)
            mean, half = map(float, shown[column].split(" ± "))
            assert mean == pytest.approx(np.mean(values), abs=0.0006)
            assert half == pytest.approx((max(values) - min(values)) / 2, abs=0.0006)
    report = pd.read_csv(ROOT / "data/reference/lab04_large_batch_accuracy.csv").set_index("run")
    for run, updates in (("single GPU", 1955), ("four GPUs", 125)):
        shown = rows[f"report C, {run}",]
        assert (float(shown["train_loss"]), float(shown["train_accuracy"])) == (
            report["train_loss"][run], report["train_accuracy"][run])
        assert int(shown["updates"]) == updates
    assert r"$5 \times 391 = 1955$ updates against $5 \times 25 = 125$" in prose()
    assert "0.7834 against 0.7536" in prose()


def test_the_answers_on_c4_are_those_of_the_records():
    means = {name: np.mean(last(name, "val_accuracy")) for name in C4_1}
    losses = {name: np.mean(last(name, "loss")) for name in C4_1}
    alone, none, sqrt, linear, warm = C4_1
    for name, words in ((alone, "a training loss of {:.2f} and a validation accuracy of {:.2f}"),
                        (sqrt, "at {:.2f} and {:.2f} with the square root rule, the highest mean of the four"),
                        (warm, "at {:.2f} and {:.2f} with linear scaling and warmup")):
        assert words.format(losses[name], means[name]) in prose()
    assert max(list(C4_1)[1:], key=lambda name: means[name]) == sqrt
    errors = proportions.difference(means[alone], means[sqrt], 2997)
    lost = f"loses {means[alone] - means[sqrt]:.2f} or more under each of the four rules"
    assert f"{lost}: at least {errors:.1f} standard errors" in prose()
    cold = last(linear, "val_accuracy")
    fails = "that fails: the validation accuracies are {:.2f}, {:.2f} and {:.2f}, where chance is 0.10"
    assert fails.format(*sorted(cold)) in prose()
    assert min(last(warm, "val_accuracy")) > max(cold) + 0.1, "works with every seed"
    both = f"validation accuracy {means[warm]:.3f} against {means[none]:.3f}"
    assert f"**not show that it is better than no scaling** ({both})" in prose()
    _, low, high = statistics.difference(last(warm, "val_accuracy"), last(none, "val_accuracy"))
    assert low < 0 < high, "the seeds cannot tell them apart"
    within = abs(proportions.difference(means[warm], means[none], 2997))
    assert f"the difference is {within:.1f} standard errors" in prose()
    assert within < proportions.NOISE
    for other in (none, sqrt, warm):
        _, low, high = statistics.difference(last(alone, "val_accuracy"), last(other, "val_accuracy"))
        assert low > 0, "more than the noise of the seeds"
    steps = [sum(row["steps"] for row in C4_1[name][0]["history"]) for name in (sqrt, alone)]
    assert "{} updates where the small one has {:,}".format(*steps) in prose()


def test_m5_has_the_numbers_of_eight_workers():
    rows = table('m5 = pd.DataFrame')
    assert {key: (int(row["B"]), float(row["linear"]), int(row["updates"])) for key, row in rows.items()} == {
        ("1", "1"): (128, 0.001, 18760), ("1", "4"): (512, 0.004, 4720), ("2", "8"): (1024, 0.008, 2360)}
    assert float(rows["2", "8"]["square root"]) == pytest.approx(0.001 * math.sqrt(8), abs=0.00006)
    assert "the global batch grows from 128 to 1,024, the learning rate to 0.008" in prose().replace("The", "the")
    assert "2,360 updates instead of 18,760" in prose()


def test_report_fs_learning_rates_are_200_apart():
    used = pd.read_csv(ROOT / "data/reference/lab09_fruits.csv")["learning_rate"].dropna()
    assert used.max() / used.min() == pytest.approx(200)
    assert "The linear rule gives its factor of 200 only for 200 GPUs" in prose()


def test_no_cell_writes_to_the_error_stream():
    assert not [output for cell in committed.cells(LAB) for output in cell.get("outputs", [])
                if output.get("name") == "stderr"]


def test_records_are_tables():
    assert len(records.table(TWO_CORES)) == len(TWO_CORES)
