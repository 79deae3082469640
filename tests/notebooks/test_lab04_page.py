"""The committed page of lab 4: its figures follow from the records, and its arguments from the reports' tables."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from labs.measure import ledger_columns
from labs.results import records, reference, scaling, time_ledger
from labs.run.paths import ROOT
from tests.notebooks import committed

LAB = "lab04_speedup"
KEPT = reference.read_all("two-cores", LAB)
RUNS = records.table(KEPT)
REPORT = pd.read_csv(ROOT / "data/reference/lab04_speedup.csv").set_index(["batch_size_per_worker", "workers"])
PAGE = committed.prose(committed.cells(LAB))
TEXT = " ".join(PAGE.split())
CELLS = [(b, n) for b in (32, 128, 512) for n in (1, 2, 4)]
ENTRIES = {"input", "compute", "communication", "start", "other"}


def samples(b: int, n: int) -> pd.DataFrame:
    return time_ledger.samples([run for run in KEPT
                                if (run["config"]["batch_size"], run["layout"]["size"]) == (b, n)])


def middle(text: str) -> float:
    """Return the value of "1.52 (1.48 to 1.56)" or "1.52 ± 0.04"."""
    return float(re.match(r"-?[\d.]+", text)[0])


def bold(fragment: str) -> list[str]:
    """Return the bold sentences that a cell displays."""
    outputs = committed.cell(LAB, fragment)["outputs"]
    text = "".join("".join(output["data"].get("text/markdown", "")) for output in outputs if "data" in output)
    return re.findall(r"\*\*(.+?)\*\*", text)


# The runs of the page itself.

def test_the_live_cells_run_on_both_ranks():
    live = [cell for cell in committed.cells(LAB) if "".join(cell["source"]).startswith("%%px\n")]
    assert len(live) >= 2
    for cell in live:
        assert "rank 0: " in committed.printed(cell)
        assert "rank 1: " in committed.printed(cell)
    assert f"{4 * 308_826:,} bytes" in committed.printed(committed.cell(LAB, "hvd.grouped_allreduce"))


def test_the_exchange_by_hand_is_set_beside_the_kits():
    text = committed.printed(committed.cell(LAB, "statistics.difference(kit"))
    lines = re.findall(r"^(by hand|the kit): +(-?[\d.]+) ms per step, from (-?[\d.]+) to (-?[\d.]+)$", text, re.M)
    values = {name: [float(value) for value in numbers] for name, *numbers in lines}
    assert all(low <= value <= high for value, low, high in values.values())
    change, low, high = (float(each) for each in re.search(
        r"difference is ([+-][\d.]+) ms, from ([+-][\d.]+) to ([+-][\d.]+):", text).groups())
    assert change == pytest.approx(values["the kit"][0] - values["by hand"][0], abs=0.011)
    assert ("they cannot be told apart" in text) == (low <= 0 <= high)


def test_the_own_speedups_have_the_right_baseline():
    cell = committed.cell(LAB, 'scaling.speedups(own), scaling.speedups(own, scaling="strong")')
    rows = {(kind, int(b), int(n)): {name: float(value) for name, value in row.items()}
            for (kind, b, n), row in committed.table(cell).items()}
    alone = {b: row["T (s)"] for (kind, b, n), row in rows.items() if (kind, n) == ("weak", 1)}
    assert len(alone) == 2
    for (kind, b, n), row in rows.items():
        base = alone[b if kind == "weak" else b * n]
        assert row["S"] == pytest.approx(base / row["T (s)"], rel=0.05), "T is rounded"
        assert row["E"] == pytest.approx(row["S"] / n, abs=0.006)
    assert {kind for kind, *_ in rows} == {"weak", "strong"}


def test_each_own_ledger_sums_to_the_wall_time_and_says_the_share_of_other():
    for row in committed.table(committed.cell(LAB, "time_ledger.shown(samples, digits=3)")).values():
        entries = {name: middle(text) for name, text in row.items() if name in ENTRIES}
        assert set(entries) == ENTRIES
        assert sum(entries.values()) == pytest.approx(middle(row["wall"]), abs=0.003)
        share = entries["other"] / middle(row["wall"])
        assert float(row["share of other"].rstrip("%")) / 100 == pytest.approx(share, abs=0.005)
        assert all("±" in row[name] for name in ENTRIES), "every entry has an interval"


def test_a_bold_sentence_names_the_bound_of_each_batch_size():
    own, kept = bold("guess = dict.fromkeys(batches)"), bold("itertools.product((32, 128, 512), (2, 4))")
    assert len(own) == 2
    assert len(kept) == 6
    for sentence in (*own, *kept):
        assert re.search(r"bounds the scaling|largest excess", sentence)
        assert any(sentence.startswith(name) for name in ENTRIES)


# The reference runs.

def test_the_reference_runs_are_all_cells_of_c1_and_their_strong_scaling_three_times():
    runs = RUNS.groupby(["batch_size", "size"])["seed"].nunique()
    strong = [(total // n, n) for total in (128, 512) for n in (1, 2, 4)]
    assert (runs[sorted({*CELLS, *strong})] == 3).all()
    assert len(runs) == len({*CELLS, *strong})
    assert RUNS["threads"].eq(1).all()
    assert all(record["history"][-1]["images"] == 8192 for record in KEPT)
    assert all(record["history"][-1]["steps"] >= 4 for record in KEPT)
    assert all(record["config"]["data"] == "cifar-10-jpeg" for record in KEPT)


def test_c1_is_the_table_of_the_records_beside_the_reports():
    rows = committed.table(committed.cell(LAB, 'both = {"two cores"'))
    assert [tuple(map(int, key)) for key in rows] == CELLS
    speeds = RUNS.groupby(["batch_size", "size"])["images_per_sec"].median()
    for b, n in CELLS:
        row = rows[str(b), str(n)]
        assert middle(row["two cores T (s)"]) == pytest.approx(8192 / speeds[b, n], abs=0.006)
        assert middle(row["two cores S"]) == pytest.approx(speeds[b, n] / speeds[b, 1], abs=0.006)
        assert middle(row["two cores E"]) == pytest.approx(speeds[b, n] / speeds[b, 1] / n, abs=0.006)
        assert ("to" in row["two cores S"]) == (n > 1), "an interval, but for the baseline"
        theirs = REPORT["epoch_seconds"][b, 1] / REPORT["epoch_seconds"][b, n]
        assert float(row["report C S"]) == pytest.approx(theirs, abs=0.006)


def test_c2_is_the_table_of_the_records():
    rows = committed.table(committed.cell(LAB, "totals = lab.SWEEPS"))
    speeds = RUNS.groupby(["batch_size", "size"])["images_per_sec"].median()
    assert [tuple(map(int, key)) for key in rows] == [(total, n) for total in (128, 512) for n in (1, 2, 4)]
    for (total, n), row in ((map(int, key), row) for key, row in rows.items()):
        assert int(row["b"]) == total // n
        assert middle(row["S"]) == pytest.approx(speeds[total // n, n] / speeds[total, 1], abs=0.006)


def test_four_workers_on_two_cores_are_marked_and_explained():
    assert TEXT.count("Four workers share the two cores") >= 1
    for fragment in ("plots.scaling(ours", "plots.scaling(strong"):
        assert "plots.shade_above(figure, 2" in "".join(committed.cell(LAB, fragment)["source"])
    speeds = RUNS.groupby(["batch_size", "size"])["images_per_sec"].median()
    assert all(speeds[b, 4] / speeds[b, 1] < 2.1 for b in (32, 128, 512)), "no more than the two cores"


def test_c31_is_the_ledger_of_the_records_with_intervals():
    rows = committed.table(committed.cell(LAB, "groups.setdefault(cell"))
    assert [tuple(map(int, key)) for key in rows] == CELLS
    for b, n in CELLS:
        ledger = time_ledger.table(samples(b, n))
        for name in (*ENTRIES, "wall"):
            text = rows[str(b), str(n)][name]
            assert text == f"{ledger['seconds'][name]:.2f} ± {ledger['plus_minus'][name]:.2f}"


def test_the_bold_sentences_are_those_of_the_records():
    shown = bold("itertools.product((32, 128, 512), (2, 4))")
    computed = [time_ledger.bound(time_ledger.excess(samples(b, 1), samples(b, n), n))
                for b in (32, 128, 512) for n in (2, 4)]
    assert shown == [f"{sentence}." for sentence in computed]


# The reports.

def test_a_ring_cannot_make_four_gpus_as_fast_as_two():
    cell = committed.cell(LAB, "def misfit")
    assert int(re.search(r"misses one of the six step times by (\d+)%", committed.printed(cell))[1]) > 30
    rows = committed.table(cell)
    for (b,), row in rows.items():
        step = {n: 1000 * REPORT["epoch_seconds"][int(b), n] * int(b) * n / 50_000 for n in (1, 2, 4)}
        for n in (2, 4):
            assert float(row[f"ms more than N = 1, N = {n}"]) == pytest.approx(step[n] - step[1], abs=0.06)
    assert "grows with the batch: from 8 to 55 ms on two GPUs and from 48 to 354 ms on four" in TEXT
    quotients = [REPORT["epoch_seconds"][b, 2] / REPORT["epoch_seconds"][b, 4] for b in (32, 128, 512)]
    assert [f"{each:.2f}" for each in quotients] == ["1.00", "1.05", "1.04"]
    assert "Report C has 1.00, 1.05 and 1.04" in TEXT
    assert max(quotients) < 4 / 3


def test_report_ms_efficiency_needs_a_link_that_contradicts_its_four_gpus():
    text = committed.printed(committed.cell(LAB, "exchange = step[2] - step[1]"))
    more, speed = re.search(r"need ([\d.]+) ms more per step: (\d+) MB/s for 4.8 MB", text).groups()
    assert float(more) == pytest.approx(16.2, abs=0.06)
    assert float(speed) == pytest.approx(4 * 1_199_882 / float(more) / 1e3, rel=0.01)
    most, measured = map(float, re.search(r"at most S\(4\) = ([\d.]+); report M has ([\d.]+)", text).groups())
    assert (most, measured) == (2.0, 2.24)
    assert "$S(4)$ = 2.0; report M has 2.24" in TEXT
    assert "We assume that of Keras' MNIST example" in TEXT


def test_report_c_divided_one_fixed_amount_in_every_row():
    rows = committed.table(committed.cell(LAB, 'proof["gradients (MB)"]'))
    assert [row["seconds x GB/s (MB)"] for row in rows.values()] == ["178.0"] * 6
    assert "**178 MB in every row**, for 782 steps as for 25" in TEXT
    gradients = [int(row["gradients (MB)"]) for row in rows.values()]
    assert "35 GB in the first row and 1.1 GB in the last" in TEXT
    assert (round(gradients[0] / 1000), round(gradients[-1] / 1000, 1)) == (35, 1.1)
    assert [row["steps"] for row in rows.values()][::5] == ["782", "25"]


def test_a_speed_is_not_called_impossible_that_nvlink_reaches():
    assert "No link" not in PAGE
    assert 4 * 11_173_962 * 782 / REPORT["comm_seconds_as_reported"][32, 2] < 370e9, "nccl-tests, issue 212"
    assert "not above the NVLink of H100 GPUs" in TEXT


def test_the_page_writes_one_notation():
    assert not re.search(r"\$n\$|S\(n\)|E\(n\)|T\(n\)", PAGE)
    assert "guess = None" in "".join("".join(cell["source"]) for cell in committed.cells(LAB))
    assert scaling.SECONDS[0] == "seconds_per_epoch"
    assert set(ledger_columns.ENTRIES) == ENTRIES


def test_the_answers_quote_the_records_and_the_reports():
    speeds = RUNS.groupby(["batch_size", "size"])["images_per_sec"].median()
    ledgers = {cell: time_ledger.table(samples(*cell)) for cell in CELLS}
    one, two = ([f"{8192 / speeds[b, 1]:.1f}" for b in (32, 128, 512)],
                [f"{speeds[b, 2] / speeds[b, 1]:.2f}" for b in (32, 128, 512)])
    assert "takes {}, {} and {} s with 32, 128 and 512 images".format(*one) in TEXT
    assert "Two workers are {}, {} and {} times as fast".format(*two) in TEXT
    theirs = REPORT["epoch_seconds"]
    for n, shown in ((2, "$S(2)$ = {}, {} and {}"), (4, "$S(4)$ = {}, {} and {}")):
        assert shown.format(*(f"{theirs[b, 1] / theirs[b, n]:.2f}" for b in (32, 128, 512))) in TEXT
    assert f"$S(4)$ = {theirs[128, 1] / theirs[32, 4]:.2f}, slower than one" in TEXT
    assert f"25.9 and 19.9 s: $S(4)$ = {theirs[512, 1] / theirs[128, 4]:.2f}" in TEXT
    assert f"gain nothing: $S(4)$ = {speeds[32, 4] / speeds[128, 1]:.2f}. With $b$ = 128 held they reach " \
           f"{speeds[128, 4] / speeds[128, 1]:.2f}" in TEXT
    compute = [f"{ledgers[b, 2]['seconds']['compute']:.2f}" for b in (32, 128, 512)]
    assert "two workers compute for {}, {} and {} s per epoch".format(*compute) in TEXT
    sent = [f"{ledgers[b, 2]['seconds']['communication']:.2f} ± {ledgers[b, 2]['plus_minus']['communication']:.2f}"
            for b in (32, 128, 512)]
    assert "communicate for {}, {} and {} s".format(*sent) in TEXT
    others = {cell: ledger["share"]["other"] for cell, ledger in ledgers.items()}
    assert [cell for cell in CELLS if cell[1] <= 2 and others[cell] >= 0.05] == [(128, 2)]
    assert ledgers[128, 2]["plus_minus"]["other"] > ledgers[128, 2]["seconds"]["other"] > 0
    assert "it is {:.0f}, {:.0f} and {:.0f} %".format(*(100 * others[b, 4] for b in (32, 128, 512))) in TEXT
    exceeding = [time_ledger.excess(samples(b, 1), samples(b, 2), 2) for b in (32, 128, 512)]
    assert [each.index[0] for each in exceeding] == ["communication", "compute", "compute"]
    assert all(each["excess"]["compute"] > 0 for each in exceeding)
