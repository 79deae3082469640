"""The committed page of lab 2: what its ranks print is what the text says, and its tables follow from the records."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from labs.course import proportions
from labs.results import records, reference, scaling, statistics
from labs.run.paths import ROOT
from tests.notebooks import committed

LAB = "lab02_horovod"
TWO_CORES = reference.read_all("two-cores", LAB)
REPORT = pd.read_csv(ROOT / "data/reference/lab02_mnist_accuracy.csv")


def by_rank(fragment: str) -> dict[str, list[str]]:
    """Return the lines that each rank has printed in the one cell that has a fragment in its source."""
    lines = committed.printed(committed.cell(LAB, fragment)).splitlines()
    return {rank: [line.partition(": ")[2] for line in lines if line.startswith(f"rank {rank}: ")] for rank in "01"}


def numbers(line: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.\d*(?:e-?\d+)?|-?\d+", line)]


def test_the_live_cells_run_on_both_ranks():
    live = [cell for cell in committed.cells(LAB) if "".join(cell["source"]).startswith("%%px\n")]
    assert len(live) >= 8
    for cell in live:
        assert "rank 0: " in committed.printed(cell)
        compile("".join(cell["source"]).removeprefix("%%px\n"), "cell", "exec")


def test_ranks_and_the_allreduce_are_those_of_two_workers():
    assert {rank: numbers(line)[:3] for rank, (line,) in by_rank("hvd.init()").items()} == {
        "0": [0, 0, 2], "1": [1, 1, 2]}
    for rank, has in (("0", [1, 2]), ("1", [3, 4])):
        assert numbers(by_rank("op=hvd.Sum")[rank][0]) == [*has, 4, 6, 2, 3]


def test_the_mean_of_two_gradients_is_that_of_all_examples():
    zero, one = ({line.split("[")[0].strip(): numbers(line.partition("[")[2]) for line in lines}
                 for lines in by_rank('"all 32": gradient').values())
    assert zero["own"] != one["own"]
    assert np.mean([zero["own"], one["own"]], axis=0) == pytest.approx(zero["mean"], abs=1e-4)
    assert zero["mean"] == one["mean"] == zero["all 32"] == one["all 32"]


def test_paths_stay_apart_come_apart_or_are_one():
    text = committed.printed(committed.cell(LAB, "drawings.loss_paths"))
    ends = {line.partition(":")[0]: numbers(line.partition(":")[2]) for line in text.splitlines()}
    assert ends["no broadcast"][0] == ends["no broadcast"][1] > 0.5, "parallel"
    assert ends["no all-reduce"][0] == 0 < 0.3 < ends["no all-reduce"][1]
    assert ends["both"] == [0, 0]


def test_the_step_by_hand_is_that_of_the_optimizer_bit_for_bit():
    for lines in by_rank("DistributedOptimizer(tf.keras").values():
        assert numbers(lines[0]) == [0]
    shown = committed.printed(committed.cell(LAB, "_reduce_then_apply"))
    assert "hvd.grouped_allreduce(" in shown
    assert "apply_of_keras(passes.reduce(grads, variables))" in shown
    assert 15 <= len(shown.splitlines()) <= 30


def test_examples_used_are_counted_as_the_text_says():
    used = {line.partition(":")[0]: int(numbers(line.partition(":")[2])[0]) for line in by_rank("common[:16]")["0"]}
    orders = [np.random.default_rng(rank).permutation(32)[rank::2] for rank in range(2)]
    assert used == {"one seed, no shard": 16, "own seed, shard": len(np.union1d(*orders)), "one seed, shard": 32}
    assert 16 < used["own seed, shard"] < 32


def test_twice_the_learning_rate_makes_up_for_half_of_the_steps():
    _, *losses = [numbers(line)[-1] for line in by_rank("loss_after_an_epoch")["0"]]
    one, two, doubled, *exploded = losses
    assert two > 1.1 * one
    assert doubled == pytest.approx(one, rel=0.05)
    assert min(exploded) > 100 * one, "of one worker, too"


def test_what_all_ranks_write_is_there_once_per_rank():
    lines = by_rank("log.csv")["0"]
    assert lines[:3] == ["epoch 1, written by all ranks"] * 2 + ["epoch 1, written by rank 0"]
    assert lines[3].startswith("3 lines")


def test_the_difference_has_ten_lines_that_say_why():
    diff = committed.printed(committed.cell(LAB, "difflib.ndiff")).splitlines()
    added = [line for line in diff if line.startswith("+ ") and line[2:].strip()]
    assert len(added) == 10
    assert max(map(len, diff)) <= 97, "the width of a page of 900 pixels"
    assert all("# Horovod:" in line for line in added)


def test_two_workers_compute_what_one_computes():
    one, two = re.findall(r"workers?: test_loss ([\d.]+)", committed.printed(committed.cell(LAB, "pair.run(")))
    assert float(two) == pytest.approx(float(one), rel=0.01)


def test_the_own_speedup_is_that_of_the_table():
    cell = committed.cell(LAB, "throughput.seconds_per_step")
    rows = {int(n): {name: float(value) for name, value in row.items()} for (n,), row in committed.table(cell).items()}
    text = committed.printed(cell)
    most = max(rows)
    speedup = rows[most]["images_per_sec"] / rows[1]["images_per_sec"]
    assert float(re.search(r"S = ([\d.]+)", text)[1]) == rows[most]["S"] == pytest.approx(speedup, abs=0.006)
    assert rows[most]["E"] == pytest.approx(speedup / most, abs=0.006)
    times = re.search(r"takes ([\d.]+) ms instead of ([\d.]+) ms: ([+-][\d.]+) ms", text)
    longer, before, more = map(float, times.groups())
    assert (longer, before) == (rows[most]["step (ms)"], rows[1]["step (ms)"])
    assert more == pytest.approx(longer - before, abs=0.11)


def test_the_answer_to_m3_is_that_of_the_records_beside_the_reports():
    rows = committed.table(committed.cell(LAB, "columns = {\"accuracy\""))
    assert [tuple(map(int, key)) for key in rows] == [(epochs, n) for epochs in (21, 40) for n in (1, 2, 4)]
    kept = records.table(TWO_CORES)
    assert (kept.groupby(["epochs", "size"])["seed"].nunique() == 3).all()
    page = committed.cell(LAB, "columns = {\"accuracy\"")
    html = "".join(next(output["data"]["text/html"] for output in page["outputs"] if "data" in output))
    accuracies = kept.groupby(["epochs", "size"])["test_accuracy"].mean()
    speeds = kept.groupby(["epochs", "size"])["images_per_sec"].median()
    for (epochs, n), accuracy in accuracies.items():
        shown = rows[str(epochs), str(n)]
        assert f"<td>{accuracy:.4f}</td>" in html
        assert f"<td>{speeds[epochs, n] / speeds[epochs, 1]:.2f}</td>" in html
        assert len(shown) <= 9
    theirs = REPORT.query("nodes == 1 and epochs == 40").set_index("workers")["train_seconds"]
    for n, right in ((2, 1.2), (4, 2.24)):
        assert theirs[1] / theirs[n] == pytest.approx(right, abs=0.006)
        assert f"<td>{right:.2f}</td>" in html


def test_the_answer_to_m3_says_what_the_records_show():
    kept = records.table(TWO_CORES)
    prose = committed.prose(committed.cells(LAB))
    speeds = kept.groupby(["epochs", "size"])["images_per_sec"].median()
    two = {epochs: round(speeds[epochs, 2] / speeds[epochs, 1], 1) for epochs in (21, 40)}
    assert f"two workers trained {two[21]} times (21 epochs) and {two[40]} times (40 epochs) as fast as one" in prose
    assert all(speeds[epochs, 4] < speeds[epochs, 2] for epochs in (21, 40)), "no gain over two is shown"
    lines = scaling.speedups(kept).set_index(["epochs", "size"])
    assert lines["speedup_low"][40, 2] < lines["speedup_high"][21, 2], "their intervals overlap"
    alone = kept[kept["size"] == 1]["images_per_sec"]
    assert f"differ by {alone.max() / alone.min() - 1:.0%}".replace("%", " %") in prose
    accuracy = kept.groupby(["epochs", "size"])["test_accuracy"]
    means, sizes = accuracy.mean(), (1, 2, 4)
    by_workers = [((epochs, one), (epochs, n)) for epochs in (21, 40) for one, n in ((1, 2), (1, 4), (2, 4))]
    by_epochs = [((21, n), (40, n)) for n in sizes]
    largest = [max(abs(means[other] - means[one]) for one, other in pairs) for pairs in (by_workers, by_epochs)]
    differ = "differ by up to {:.4f} between numbers of workers, and by up to {:.4f} between numbers of epochs"
    assert differ.format(*largest) in prose
    assert largest[0] < largest[1], "the epochs changed it more"
    beyond: dict[str, set] = {"seeds": set(), "images": set(), "both": set()}
    for one, other in by_workers + by_epochs:
        _, low, high = statistics.difference(accuracy.get_group(other), accuracy.get_group(one))
        errors = abs(proportions.difference(means[other], means[one], 10_000))
        more = {"seeds": not low <= 0 <= high, "images": errors >= proportions.NOISE}
        for measure in (name for name, is_more in (more | {"both": all(more.values())}).items() if is_more):
            beyond[measure].add((one, other))
    assert beyond == {"seeds": {((40, 1), (40, 4)), ((40, 2), (40, 4)), ((21, 2), (40, 2))},
                      "images": {((21, 1), (40, 1))}, "both": set()}
    assert "(2.2 standard errors) only that of the test images" in prose
    assert f"{proportions.difference(means[40, 1], means[21, 1], 10_000):.1f}" == "2.2"


def test_the_noise_of_report_ms_accuracies_is_as_the_page_says():
    theirs = REPORT[REPORT["nodes"] == 1].set_index(["epochs", "workers"])["test_accuracy"]
    errors = [proportions.difference(theirs[other], theirs[one], 10_000)
              for one, other in (((21, 1), (21, 4)), ((40, 1), (40, 4)), ((21, 1), (40, 1)), ((21, 2), (40, 2)))]
    assert [f"{error:.1f}" for error in errors] == ["4.4", "4.7", "-1.5", "-4.1"]
    lower = [proportions.difference(theirs[40, n], theirs[21, n], 10_000) for n in (1, 4)]
    assert all(-proportions.NOISE < error < 0 for error in lower), "with one and four by less than two"
    prose = committed.prose(committed.cells(LAB))
    assert "(4.4 standard errors after 21 epochs, 4.7 after 40)" in prose
    assert "*lower* after 40 epochs than after 21 (with two by 4.1 standard errors" in prose
    rows = committed.table(committed.cell(LAB, "report M: difference in standard errors"))
    assert [row["report M: difference in standard errors"] for row in rows.values()] == [
        "+4.4", "+4.7", f"{proportions.difference(theirs[40, 4], theirs[40, 2], 10_000):+.1f}", "-1.5", "-4.1"]


def test_the_reference_runs_are_the_laptop_preset_on_real_digits():
    for record in TWO_CORES:
        assert record["config"]["data"] == "real"
        assert record["layout"]["threads"] == 1
        assert record["metrics"]["test_accuracy"] > 0.9


def test_steps_of_report_m_give_its_efficiency():
    text = committed.printed(committed.cell(LAB, "ms per step on 1, 2, 4 GPUs"))
    one, two, four = numbers(text.splitlines()[-1].partition("GPUs:")[2])
    assert round(one / two, 2) == 0.60
    assert round(one / four, 2) == 0.56
    prose = committed.prose(committed.cells(LAB))
    assert f"{two - one:.1f} ms longer" in prose
    assert f"{four - two:.1f} ms more" in prose
    assert "(379.7 - 27.5) s / (18,750 / 2) = (203.6 - 27.5) s / (18,750 / 4) = 37.6 ms" in prose
    seconds = REPORT.query("nodes == 1 and epochs == 40")["train_seconds"].round(1).tolist()
    assert seconds[1:] == [379.7, 203.6]
    assert (seconds[1] - 27.5) / 9375 == pytest.approx((seconds[2] - 27.5) / 4687.5, rel=0.001), "the same step"
    assert f"{18_750 / 3_120:.2f}" in prose


def test_sharing_follows_its_formula():
    text = committed.printed(committed.cell(LAB, "own_order"))
    whole, own, same = (int(re.search(r": (\d+) of 8000", line)[1]) for line in text.splitlines()[:3])
    assert (whole, same) == (8000, 2000)
    assert own / 8000 == pytest.approx(1 - (1 - 1 / 4) ** 4, abs=0.01)


def test_all_series_of_the_figure_of_shares_are_computed():
    rows = committed.table(committed.cell(LAB, "one seed, no shard\": [used("))
    for (n,), row in rows.items():
        shares = {name: float(value) for name, value in row.items()}
        assert shares["one order, sharded"] == 1
        assert shares["one seed, no shard"] == pytest.approx(1 / int(n), abs=0.001)
        assert shares["own shuffles"] == pytest.approx(1 - (1 - 1 / int(n)) ** int(n), abs=0.01)


def test_no_cell_writes_to_the_error_stream():
    assert not [output for cell in committed.cells(LAB) for output in cell.get("outputs", [])
                if output.get("name") == "stderr"]
