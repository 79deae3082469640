"""The committed page of lab 5: what its ranks print is what the text says, and its tables follow from the records."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from labs.course import drawings, over_links
from labs.results import reference
from labs.run.paths import ROOT
from tests.notebooks import committed
from tests.notebooks.committed import cell, cells, printed, table

LAB = "lab05_allreduce"
PROSE = committed.prose(cells(LAB))
SHARES = over_links.shares(reference.read_all("laptop-cluster", LAB))
GRADIENTS = 4 * 11_173_962
REPORT = pd.read_csv(ROOT / "data/reference/lab04_speedup.csv").dropna(subset=["comm_seconds_as_reported"])


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"-?\d[\d,]*\.?\d*", text)]


def by_rank(fragment: str) -> dict[str, str]:
    """Return what each rank has printed in the one cell that has a fragment in its source."""
    lines = printed(cell(LAB, fragment)).splitlines()
    return {rank: "\n".join(line.partition(": ")[2] for line in lines if line.startswith(f"rank {rank}: "))
            for rank in "01"}


def measured() -> dict[str, dict[str, float]]:
    """Return milliseconds, GB/s and percent of the largest all-reduce, by library, as the page prints them."""
    lines = re.findall(r"(?m)^(.+), ([\d,]+) bytes: ([\d.]+) ms, busbw ([\d.]+) GB/s, (\d+)% of the peak",
                       printed(cell(LAB, "lab.small_messages(gloo)")))
    return {library: {"bytes": float(nbytes.replace(",", "")), "ms": float(ms), "busbw": float(busbw),
                      "percent": float(percent)} for library, nbytes, ms, busbw, percent in lines}


def test_the_page_is_as_long_as_a_page_may_be():
    code = ["".join(each["source"]) for each in cells(LAB) if each["cell_type"] == "code"]
    assert len(code) <= 30
    for source in code:
        if "exercises" not in source:
            assert max(map(len, source.splitlines())) <= 88, source
        compile(source.removeprefix("%%px\n"), "cell", "exec")
    lines = [line for each in cells(LAB) for line in printed(each).splitlines() if not line.startswith("lab05")]
    assert max(map(len, lines)) <= 100


def test_letters_are_those_of_the_glossary():
    assert not re.search(r"\$S\b|\bS\$|\$n\b|\(n ?- ?1\)|2\(N-1\)", PROSE)
    stubs = "".join("".join(each["source"]) for each in cells(LAB) if each["cell_type"] == "code")
    assert "S / beta" not in stubs
    assert "beta: Seconds per byte of an all-reduce" in stubs


def test_both_ranks_find_horovods_sum_by_hand():
    for rank, had in (("0", [1, 2, 3, 4]), ("1", [10, 20, 30, 40])):
        assert numbers(by_rank("naive = mine")[rank]) == [*had, 11, 22, 33, 44, 16]
        assert numbers(by_rank("halves = np.split")[rank]) == [11, 22, 33, 44, 16, 0.0]


def test_the_ring_ends_with_all_sums_and_its_bytes_are_the_formulas():
    shown = cell(LAB, "drawings.ring_steps(start)")
    steps = re.findall(r"(?m)^\d((?: +\d+| \|)+)$", printed(shown))
    assert len(steps) == 7
    assert set(steps[-1].replace("|", "").split()) == {"1111"}
    for (n,), row in table(shown).items():
        assert float(row["ring: each rank"]) == float(row["2 (N - 1) / N M"]) == 2 * (int(n) - 1) / int(n) * 4096
        assert float(row["naive: rank 0"]) == (int(n) - 1) * 4096


def test_the_times_of_the_topologies_are_the_tables():
    times = drawings.topology_table(44.7e6)["seconds"]
    sentence = f"take {1e3 * times['ring']:.0f} ms instead of {1e3 * times['tree']:.0f} ms (tree) and "
    assert f"{sentence}{1e3 * times['naive']:.0f} ms (naive)" in PROSE
    shown = table(cell(LAB, "drawings.topology_table"))
    fastest = {size: min((float(row["ms"]), name) for (group, name), row in shown.items() if group == size)[1]
               for size in ("44.7 MB", "1 kB")}
    assert fastest == {"44.7 MB": "ring", "1 kB": "tree"}


def test_the_fit_by_hand_is_that_of_the_kit():
    text = printed(cell(LAB, "np.polyfit"))
    by_hand, kit = (numbers(re.search(rf"{who}: alpha = (.*) GB/s", text)[1]) for who in ("by hand", "the kit"))
    assert by_hand == pytest.approx(kit, abs=0.011)
    alpha, _, gigabytes = kit
    assert float(re.search(r"at ([\d.]+) MB", text)[1]) == pytest.approx(2 * alpha * gigabytes, rel=0.15)


def test_the_first_call_takes_longer():
    first, later = numbers(re.search(r"first call (.*) ms", by_rank("def times_of")["0"])[1])
    assert first > later


def test_no_bytes_cross_an_interface_over_shared_memory():
    crossed = float(re.search(r"([\d.]+) MiB crossed", by_rank("def sent_bytes")["0"])[1])
    assert crossed < 1, "of 20 MiB"


def test_horovods_factors_against_raw_mpi_are_those_of_the_table():
    shown = cell(LAB, "factor = table.loc")
    rows = {library: row for (library,), row in table(shown).items()}
    small, large, nbytes = numbers(re.search(r"Horovod takes (.*) bytes$", printed(shown), re.MULTILINE)[1].replace(
        "8 bytes", ""))
    horovod, raw = rows["Horovod over MPI"], rows["raw MPI"]
    largest = list(horovod)[-1]
    assert int(largest) == nbytes
    assert large == pytest.approx(float(horovod[largest]) / float(raw[largest]), abs=0.06)
    assert small == pytest.approx(float(horovod["8"]) / float(raw["8"]), rel=0.05, abs=0.51)


def test_each_bandwidth_is_that_of_its_library():
    """The headline of "MPI" was once raw MPI's, because both names end in MPI."""
    assert list(measured()) == ["Horovod over Gloo", "Horovod over MPI", "raw MPI"]
    shown = {library: row for (library,), row in table(cell(LAB, "factor = table.loc")).items()}
    for library, row in measured().items():
        assert row["busbw"] == pytest.approx(row["bytes"] / row["ms"] / 1e6, rel=0.01), "N = 2: a factor of 1"
        if library in shown:
            assert row["ms"] == pytest.approx(float(list(shown[library].values())[-1]), abs=0.006)
    peak = float(re.search(r"within memory: ([\d.]+) GB/s", printed(cell(LAB, "factor = table.loc")))[1])
    for row in measured().values():
        assert row["percent"] == pytest.approx(100 * row["busbw"] / peak, rel=0.05, abs=1)


def test_the_latency_of_gloo_is_told_with_its_first_calls():
    """A first point of 8 ms and a second of 2 ms stood side by side: the first was timed before the run had settled."""
    line = r"Horovod over Gloo, 8 bytes: ([\d.]+) ms in the run's first call, .* ([\d.]+) ms once settled"
    text = " ".join(printed(cell(LAB, "lab.small_messages(gloo)")).split())
    first, later = map(float, re.search(line, text).groups())
    assert first > later


def test_the_share_of_a_dialled_link_is_as_the_text_says():
    two = SHARES[SHARES["nodes"] == 2].set_index(["backend", "megabits"])["share"]
    slow = two[two.index.get_level_values("megabits") <= 500]
    assert f"{slow.min():.0%} to {slow.max():.0%}".replace("%", "", 1).replace("%", " %").replace("  ", " ") in PROSE
    assert f"to {two['MPI', 10_000]:.0%} (MPI) and {two['Gloo', 10_000]:.0%} (Gloo)".replace("%", " %") in PROSE
    assert all(two["MPI", fast] > two["Gloo", fast] for fast in (5000, 10_000)), "from 5 Gbit/s on MPI is ahead"
    assert all(abs(two["MPI", link] - two["Gloo", link]) < 0.07 for link in (50, 100, 200, 500))
    many = SHARES[SHARES["megabits"] <= 100].groupby(["backend", "nodes"])["share"].mean()
    assert abs(many["Gloo", 8] - many["Gloo", 2]) < 0.07, "Gloo's share stays"
    assert many["MPI", 8] < many["MPI", 2] - 0.2, "MPI's falls"
    text = printed(cell(LAB, "ideal = 1e3"))
    for n in (2, 8):
        ideal = float(re.search(rf"N = {n}: ideal ([\d.]+) ms", text)[1])
        assert ideal == pytest.approx(1e3 * 2 * (n - 1) / n * 2**22 * 8 / 1e8, abs=0.6)


def test_report_cs_cells_follow_from_the_formula():
    rows = table(cell(LAB, "peaks = {"))
    assert [tuple(map(int, key)) for key in rows] == [(b, n) for b in (32, 128, 512) for n in (2, 4)]
    for (_, row), cell_of in zip(rows.items(), REPORT.itertuples(), strict=True):
        n, seconds = cell_of.workers, cell_of.comm_seconds_as_reported
        sent = 50_000 / cell_of.batch_size_per_worker / n * 2 * (n - 1) / n * GRADIENTS / 1e9
        assert float(row["GB sent"]) == pytest.approx(sent, abs=0.06)
        assert float(row["busbw (GB/s)"]) == pytest.approx(sent / seconds, abs=0.06)
        shares = {link: numbers(row[f"of {link}"])[0] for link in ("10 Gbit/s", "100 Gbit/s", "PCIe 3 x16",
                                                                  "NVLink (H100)")}
        assert shares["PCIe 3 x16"] == pytest.approx(100 * sent / seconds / 15.75, abs=0.6)
        assert min(shares[link] for link in ("10 Gbit/s", "100 Gbit/s", "PCIe 3 x16")) > 100, "impossible"
        assert shares["NVLink (H100)"] < 100 * 370 / 450, "possible, W4"
        assert seconds * cell_of.bandwidth_gb_per_sec_as_reported == pytest.approx(0.178, abs=0.0005)
    assert "is 178 MB in all six cells" in PROSE


def test_report_cs_cells_are_timed_at_horovods_bandwidth():
    """It was the best of raw MPI, at another size."""
    shown = cell(LAB, '"your two ranks": sent / mine')
    busbw = float(re.search(r"Horovod over MPI, [\d,]+ bytes, ([\d.]+) GB/s", printed(shown))[1])
    assert busbw == pytest.approx(measured()["Horovod over MPI"]["busbw"], abs=0.006)
    cells_of = table(cell(LAB, "peaks = {"))
    for key, row in table(shown).items():
        sent = float(cells_of[key]["GB sent"])
        assert float(row["your two ranks"]) == pytest.approx(sent / busbw, rel=0.03)
        assert float(row["10 Gbit/s at its peak"]) == pytest.approx(sent / 1.25, rel=0.03)
        assert float(row["10 Gbit/s as measured"]) > float(row["10 Gbit/s at its peak"])
    first = REPORT.iloc[0]
    sent = 50_000 / 32 / 2 * GRADIENTS / 1e9
    assert f"exchanges {sent:.1f} GB per worker: {sent / 1.25:.1f} s at the peak of 10 Gbit/s, " \
           f"{sent / 15.75:.1f} s over PCI Express 3" in PROSE
    assert f"{first['comm_seconds_as_reported']:.3f} s would be " \
           f"{first['comm_seconds_as_reported'] / first['epoch_seconds']:.1%}".replace("%", " %") in PROSE


def test_a_step_over_time_is_printed_for_four_cases():
    lines = dict(re.findall(r"(?m)^(cycle [^:]+): ([\d.]+ ms, \d messages?; .*)$", printed(cell(LAB, "step_gantts"))))
    assert list(lines) == ["cycle 1 ms", "cycle 1 ms, rank 1 sleeps 30 ms", "cycle 20 ms", "cycle 20 ms, no fusion"]
    printed_of = {name: numbers(text) for name, text in lines.items()}
    assert printed_of["cycle 20 ms, no fusion"][1] == 4, "a message for each tensor"
    assert printed_of["cycle 20 ms"][1] < 4, "fused"
    assert printed_of["cycle 1 ms, rank 1 sleeps 30 ms"][0] > 30, "all wait for the slow rank"


def test_the_bytes_of_a_step_do_not_depend_on_the_batch():
    rows = table(cell(LAB, "counted in an epoch"))
    assert len({row["MB per step, predicted"] for row in rows.values()}) == 1
    for row in rows.values():
        assert float(row["counted"]) == pytest.approx(float(row["MB per step, predicted"]), rel=0.05)
        assert float(row["counted in an epoch"]) == pytest.approx(float(row["counted"]) * int(row["steps"]), rel=0.01)
        assert abs(float(row["counted / predicted - 1"])) < 0.05


def test_a_node_sends_what_a_ring_needs():
    shown = cell(LAB, "sent by a node / M")
    over_100 = SHARES[SHARES["megabits"] == 100]
    ratio = over_100["sent_bytes"] / over_100["predicted_bytes"]
    assert ratio.between(1, 1.01).all(), "less than 1 % more"
    html = "".join("".join(output["data"].get("text/html", "")) for output in shown["outputs"] if "data" in output)
    assert html.count("21288.0") == 3


def test_the_share_of_gradients_is_one_figure():
    """Two tables of one run had two shares: one of them left out the bytes of broadcasts."""
    shown = cell(LAB, 'study="messages"')
    row = table(shown)[("gradients",)]
    share = float(re.search(r"gradients: ([\d.]+)% of the bytes", printed(shown))[1]) / 100
    assert share == pytest.approx(float(row["share"]), abs=1e-4)
    known = [float(each["bytes"]) for each in table(shown).values() if each["bytes"] != "NaN"]
    assert share == pytest.approx(float(row["bytes"]) / sum(known), abs=1e-4)
    kinds = {kind for (kind,) in table(shown)}
    assert {"initial weights and optimizer state", "metrics", "batch-norm statistics", "decisions of rank 0"} <= kinds


def test_the_mean_of_variances_is_not_the_variance():
    text = printed(cell(LAB, "halves = np.array"))
    halves = np.array([[1.0, 2, 3, 4], [11, 12, 13, 14]])
    assert f"mean of the variances: {halves.var(axis=1).mean()}; variance of all: {halves.var()}" in text
    assert f"**The mean of variances is not the variance:** {halves.var(axis=1).mean()}, not {halves.var()}." in PROSE
    assert "SyncBatchNormalization` works on Keras 2 only" in PROSE


def test_no_bars_on_logarithmic_axes():
    for each in cells(LAB):
        source = "".join(each["source"])
        assert not (".bar" in source and re.search(r"log[xy]=True|scale=\"log\"", source)), source


def test_no_cell_writes_to_the_error_stream():
    assert not [output for each in cells(LAB) for output in each.get("outputs", []) if output.get("name") == "stderr"]
