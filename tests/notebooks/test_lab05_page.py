"""Lab 5's page: figures of one library are not another's, and one run has one share of gradients."""

from __future__ import annotations

import re

import pytest

from tests.notebooks.committed import cell, cells, printed, table

LAB = "lab05_allreduce"


def seconds() -> dict[str, dict[str, str]]:
    """Return the milliseconds of all-reduces that the page shows, by library and bytes."""
    shown = table(cell(LAB, "small_messages"))
    return {library: row for (collective, library), row in shown.items() if collective == "allreduce"}


def largest(library: str) -> float:
    """Return the bus bandwidth of two workers' largest all-reduce, in GB/s."""
    (nbytes, milliseconds) = list(seconds()[library].items())[-1]
    return int(nbytes) / (float(milliseconds) / 1e3) / 1e9


def test_the_bandwidth_at_the_end_of_each_run_is_horovods():
    """It was raw MPI's: both libraries' names end in MPI."""
    output = printed(cell(LAB, "carried = "))
    ends = [float(line.split()[-1]) for line in re.findall(r"(?m)^ +2 +[\d.]+ +[\d.]+ +[\d.]+$", output)]
    assert ends == pytest.approx([largest("Horovod over MPI"), largest("Horovod over Gloo")], rel=0.01)


def test_the_reports_gradients_are_timed_at_horovods_bandwidth():
    """It was the best of raw MPI, at another size."""
    shown = cell(LAB, "seconds_at_your_busbw")
    busbw = float(re.search(r"Horovod over MPI, 16,777,216 bytes: ([\d.]+) GB/s", printed(shown))[1])
    assert busbw == pytest.approx(largest("Horovod over MPI"), rel=0.01)
    row = next(iter(table(shown).values()))
    moved = float(row["busbw_gb_per_sec"]) * float(row["comm_seconds_as_reported"])
    assert float(row["seconds_at_your_busbw"]) == pytest.approx(moved / busbw, rel=0.01)


def test_the_share_of_gradients_is_one_figure():
    """The run's own table left out the bytes of broadcasts, and the page's table did not."""
    output = re.search(r"(?m)^ *gradients +\d+ +\d+ +([\d,]+) +([\d.]+)%", printed(cell(LAB, 'study="messages"')))
    shown = table(cell(LAB, '["tables"]["messages"]'))[("gradients",)]
    assert float(output[1].replace(",", "")) == float(shown["bytes"])
    assert float(output[2]) / 100 == pytest.approx(float(shown["share"]), abs=1e-4)


@pytest.mark.parametrize("transport", ["MPI", "Gloo"])
def test_the_latency_said_in_words_is_the_tables(transport):
    """A first point of 8 ms and a second of 2 ms stood side by side: the first was timed before the run had settled."""
    line = rf"Horovod over {transport}, 8 bytes: ([\d.]+) ms in the run's first call, .* ([\d.]+) ms once settled"
    output = re.search(line, printed(cell(LAB, "small_messages")))
    assert float(output[2]) == pytest.approx(float(seconds()[f"Horovod over {transport}"]["8"]), abs=0.06)
    assert float(output[1]) > float(output[2]), "the first calls are told apart"


def test_no_bars_on_logarithmic_axes():
    for each in cells(LAB):
        source = "".join(each["source"])
        assert not (".bar" in source and re.search(r"log[xy]=True|scale=\"log\"", source)), source
