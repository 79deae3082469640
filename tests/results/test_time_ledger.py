"""The ledger with intervals: it sums to the wall time, and names what bounds the scaling only where it can."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from labs.measure import ledger_columns
from labs.results import noise, tables, time_ledger
from labs.run.errors import LabError

ROUNDS = [{"round": 1, "alone": 0.010, "exchanged": 0.012, "from_pipeline": 0.013, "one_step_epoch": 0.053},
          {"round": 2, "alone": 0.012, "exchanged": 0.013, "from_pipeline": 0.013, "one_step_epoch": 0.043}]


def record(rounds=ROUNDS, wall: float = 0.4, **entries: float) -> dict:
    metrics = {ledger_columns.column(name): value for name, value in (entries | {"wall": wall}).items()}
    history = [{"epoch": epoch, "steps": 24, "train_seconds": wall} for epoch in (1, 2, 3)]
    return {"run": "w2", "config": {}, "layout": {"size": 2}, "metrics": metrics, "tables": {"ledger": rounds},
            "history": history}


def made(n: int, seed: int = 0, **means: float) -> pd.DataFrame:
    """Return samples around some means with a noise of 1 ms."""
    noise = np.random.default_rng(seed).normal(0, 1e-3, (n, len(ledger_columns.ENTRIES)))
    frame = pd.DataFrame(noise + [means.get(name, 0.0) for name in ledger_columns.ENTRIES],
                         columns=ledger_columns.ENTRIES)
    return frame.assign(wall=frame.sum(axis=1))


def test_a_single_run_has_a_sample_per_round_that_sums_to_the_wall_time():
    seconds = time_ledger.samples([record(compute=9.0)])
    assert len(seconds) == 2, "rounds, not the run's medians"
    assert seconds["compute"].tolist() == pytest.approx([0.24, 0.288])
    assert seconds["communication"].tolist() == pytest.approx([0.048, 0.024])
    assert seconds["input"].tolist() == pytest.approx([0.024, 0.0])
    assert seconds["start"].tolist() == pytest.approx([0.04, 0.03])
    assert seconds.drop(columns="wall").sum(axis=1).tolist() == pytest.approx([0.4, 0.4])


def test_several_runs_have_a_sample_each():
    run = {"input": 0.1, "compute": 0.2, "communication": 0.05, "start": 0.01, "other": 0.04}
    seconds = time_ledger.samples([record(**run), record(**run)])
    assert seconds["start"].tolist() == [0.01, 0.01]
    assert seconds["wall"].tolist() == [0.4, 0.4]


def test_runs_without_a_ledger_are_refused():
    with pytest.raises(LabError, match="has no ledger"):
        time_ledger.samples([record() | {"metrics": {}}])


def test_the_table_has_students_interval_and_shares_of_the_wall():
    seconds = made(5, compute=0.3, communication=0.1)
    table = time_ledger.table(seconds)
    low, high = noise.mean_interval(seconds["compute"])
    row = table.loc["compute"]
    assert (row.seconds - row.plus_minus, row.seconds + row.plus_minus) == pytest.approx((low, high))
    assert table["share"].drop("wall").sum() == pytest.approx(1)
    text = time_ledger.shown({(16, 2): seconds}, 3)
    assert text["compute"].iloc[0] == f"{row.seconds:.3f} ± {row.plus_minus:.3f}"
    assert text["share of other"].iloc[0] == f"{table['share']['other']:.1%}"


def test_the_excess_is_over_one_nth_and_sums_to_what_the_speedup_lacks():
    one, many = made(5, compute=0.4, start=0.04), made(5, 1, compute=0.21, communication=0.1, start=0.04)
    exceeding = time_ledger.excess(one, many, 2)
    assert list(exceeding.index)[:2] == ["communication", "start"]
    assert exceeding["excess"]["start"] == pytest.approx(0.02, abs=2e-3)
    assert exceeding["excess"].drop("wall").sum() == pytest.approx(exceeding["excess"]["wall"])
    assert exceeding["excess"]["wall"] == pytest.approx(many["wall"].mean() - one["wall"].mean() / 2)
    assert (exceeding["low"] < exceeding["excess"]).all()


def test_what_one_worker_seems_to_communicate_is_an_error_and_no_excess():
    one, many = made(5, compute=0.4, communication=-0.05), made(5, 1, compute=0.2, communication=0.01)
    exceeding = time_ledger.excess(one, many, 2)
    assert exceeding["excess"]["communication"] == pytest.approx(many["communication"].mean())
    assert exceeding["excess"]["other"] == pytest.approx(0.025, abs=2e-3)


@pytest.mark.parametrize(("many", "sentence_of"), [
    ({"compute": 0.2, "communication": 0.1, "start": 0.02}, "communication bounds the scaling: +0.0998"),
    ({"compute": 0.25, "communication": 0.0505}, "may be as large"),
    ({"compute": 0.2, "communication": 0.0008}, "not resolved: "),
])
def test_the_bound_is_named_if_the_intervals_tell_it_from_the_others(many, sentence_of):
    sentence = time_ledger.bound(made(8, compute=0.4), made(8, 1, **many), 2)
    assert sentence_of in sentence
    assert "wall" not in sentence


def test_nothing_bounds_a_speedup_that_cannot_be_and_other_explains_nothing():
    one, superlinear = made(8, compute=0.6, other=0.2), made(8, 1, compute=0.3, communication=0.05)
    assert "shorter than ideal, -0.05" in time_ledger.bound(one, superlinear, 2)
    many = made(8, 1, compute=0.36, communication=0.1, other=-0.05)
    assert time_ledger.bound(one, many, 2).endswith("but other may be as large")


def test_entries_are_told_apart_within_the_seeds_although_their_intervals_overlap():
    """A slow seed is slow in all entries: their intervals overlap, the difference of the two excesses does not vary."""
    slow = np.array([0.0, 0.02, 0.05, 0.01, 0.04])[:, None]
    one, many = made(5, compute=0.4), made(5, 1, compute=0.2, communication=0.10, start=0.08)
    many[["communication", "start"]] += slow
    table = time_ledger.excess(one, many, 2)
    assert table["low"]["communication"] < table["high"]["start"]
    assert time_ledger.bound(one, many, 2).startswith("communication bounds the scaling: +0.12")


def test_a_disturbed_run_is_left_out_of_a_ledger_by_name():
    quiet, busy = record(compute=0.2), record(compute=0.9)
    busy["history"][1] = {"epoch": 2, "steps": 24, "train_seconds": 2.0}
    assert time_ledger.samples([quiet, busy, quiet])["compute"].tolist() == [0.2, 0.2]
    assert "w2 (the slowest of 2 epochs took 5 times" in time_ledger.samples([quiet, busy]).attrs["disturbed"][0]


def test_ledgers_are_sorted_by_cell_and_say_whether_they_can_be_trusted():
    def run(batch: int, size: int, other: float) -> dict:
        entries = {"compute": 0.4 - other, "other": other}
        return record(**entries) | {"config": {"batch_size": batch}, "layout": {"size": size}}

    cells = time_ledger.by_cell([run(64, 2, 0.1), run(32, 1, 0.01), run(64, 2, 0.1), run(32, 1, 0.02)])
    assert [*cells] == [(32, 1), (64, 2)]
    assert [len(samples) for samples in cells.values()] == [2, 2]
    assert time_ledger.readable(cells) == (
        "`other` is 25 % (N = 2, b = 64) of an epoch: do not trust the entries of these ledgers, measure again")
    assert time_ledger.readable({(32, 1): cells[32, 1]}).startswith("`other` is at most 3.8 % of an epoch")
    assert [time_ledger.trusted({cell: each}) for cell, each in cells.items()] == [True, False]


def test_an_entry_is_above_zero_by_its_interval():
    cells = {(32, 2): made(5, communication=0.01), (64, 2): made(5, communication=0.0), (32, 1): made(5, input=0.1)}
    said = time_ledger.above_zero(cells, "communication", 2)
    assert said == "`communication` is above 0 by more than noise for b = 32."
    assert time_ledger.above_zero(cells, "communication", 1).endswith("for no b.")


def test_a_figure_within_its_interval_is_text():
    frame = pd.DataFrame({"S": [1.0, 1.523], "S_low": [np.nan, 1.4], "S_high": [np.nan, 1.6]})
    assert tables.within(frame, "S", 2).tolist() == ["1.00", "1.52 (1.40 to 1.60)"]
