"""The ledger with intervals: it sums to the wall time, and names what bounds the scaling only where it can."""

import numpy as np
import pandas as pd
import pytest

from labs.results import ledger

ROUNDS = [{"round": 1, "alone": 0.010, "exchanged": 0.012, "from_pipeline": 0.013, "one_step_epoch": 0.053},
          {"round": 2, "alone": 0.012, "exchanged": 0.013, "from_pipeline": 0.013, "one_step_epoch": 0.043}]


def record(wall: float = 0.4, batch_size: int = 32, size: int = 2, **entries: float) -> dict:
    metrics = {f"ledger_{name}_seconds": value for name, value in (entries | {"wall": wall}).items()}
    history = [{"epoch": epoch, "steps": 24, "train_seconds": wall} for epoch in (1, 2, 3)]
    return {"run": "w2", "config": {"batch_size": batch_size}, "layout": {"size": size}, "metrics": metrics,
            "tables": {"ledger": ROUNDS}, "history": history}


def made(n: int, seed: int = 0, **means: float) -> pd.DataFrame:
    """Return samples around some means with a noise of 1 ms."""
    noise = np.random.default_rng(seed).normal(0, 1e-3, (n, len(ledger.ENTRIES)))
    frame = pd.DataFrame(noise + [means.get(name, 0.0) for name in ledger.ENTRIES], columns=ledger.ENTRIES)
    return frame.assign(wall=frame.sum(axis=1))


def test_a_single_run_has_a_sample_per_round_and_several_have_one_each():
    seconds = ledger.samples([record(compute=9.0)])
    measured = seconds[["compute", "communication", "input", "start"]].to_numpy()
    assert measured == pytest.approx(np.array([[0.24, 0.048, 0.024, 0.04], [0.288, 0.024, 0.0, 0.03]])), "by round"
    assert seconds.drop(columns="wall").sum(axis=1).tolist() == pytest.approx([0.4, 0.4])
    several = ledger.samples([record(start=0.01, other=0.39), record(start=0.01, other=0.39)])
    assert several["start"].tolist() == [0.01, 0.01]


def test_the_excess_is_over_one_nth_and_sums_to_what_the_speedup_lacks():
    one, many = made(5, compute=0.4, start=0.04), made(5, 1, compute=0.21, communication=0.1, start=0.04)
    exceeding = ledger.excess(one, many, 2)
    assert list(exceeding.index)[:2] == ["communication", "start"]
    assert exceeding["excess"]["start"] == pytest.approx(0.02, abs=2e-3)
    assert exceeding["excess"].drop("wall").sum() == pytest.approx(exceeding["excess"]["wall"])
    assert exceeding["excess"]["wall"] == pytest.approx(many["wall"].mean() - one["wall"].mean() / 2)
    one = made(5, compute=0.4, communication=-0.05)  # What one worker seems to communicate is an error.
    assert ledger.excess(one, many, 2)["excess"]["communication"] == pytest.approx(many["communication"].mean())


@pytest.mark.parametrize(("one", "many", "words"), [
    ({"compute": 0.4}, {"compute": 0.2, "communication": 0.1, "start": 0.02}, "bounds the scaling: +0.0998"),
    ({"compute": 0.4}, {"compute": 0.25, "communication": 0.0505}, "may be as large"),
    ({"compute": 0.4}, {"compute": 0.2, "communication": 0.0008}, "not resolved: "),
    ({"compute": 0.6, "other": 0.2}, {"compute": 0.3, "communication": 0.05}, "shorter than ideal, -0.05"),
    ({"compute": 0.6, "other": 0.2}, {"compute": 0.36, "communication": 0.1, "other": -0.05}, "but other may be as"),
])
def test_the_bound_is_named_if_the_intervals_tell_it_from_the_others(one, many, words):
    assert words in ledger.bound(made(8, **one), made(8, 1, **many), 2)


def test_entries_are_told_apart_within_the_seeds_although_their_intervals_overlap():
    """A slow seed is slow in all entries: their intervals overlap, the difference of the two excesses does not vary."""
    slow = np.array([0.0, 0.02, 0.05, 0.01, 0.04])[:, None]
    one, many = made(5, compute=0.4), made(5, 1, compute=0.2, communication=0.10, start=0.08)
    many[["communication", "start"]] += slow
    table = ledger.excess(one, many, 2)
    assert table["low"]["communication"] < table["high"]["start"]
    assert ledger.bound(one, many, 2).startswith("communication bounds the scaling: +0.12")


def test_a_disturbed_run_is_left_out_of_a_ledger_by_name():
    quiet, busy = record(compute=0.2), record(compute=0.9)
    busy["history"][1] = {"epoch": 2, "steps": 24, "train_seconds": 2.0}
    assert ledger.samples([quiet, busy, quiet])["compute"].tolist() == [0.2, 0.2]
    assert "w2 (the slowest of 2 epochs took 5 times" in ledger.samples([quiet, busy]).attrs["disturbed"][0]


def test_ledgers_are_sorted_by_cell_and_say_what_can_be_trusted():
    cells = ledger.by_cell([record(batch_size=batch, size=size, compute=0.4 - other, other=other)
                            for batch, size, other in ((64, 2, 0.1), (32, 1, 0.01), (64, 2, 0.1), (32, 1, 0.02))])
    assert {cell: len(samples) for cell, samples in cells.items()} == {(32, 1): 2, (64, 2): 2}
    assert ledger.readable(cells).startswith("`other` is 25 % (N = 2, b = 64) of an epoch: do not trust")
    assert ledger.readable({(32, 1): cells[32, 1]}).startswith("`other` is at most 3.8 % of an epoch")
    assert [ledger.trusted({cell: each}) for cell, each in cells.items()] == [True, False]
    cells = {(32, 2): made(5, communication=0.01), (64, 2): made(5, communication=0.0), (32, 1): made(5, input=0.1)}
    assert ledger.above_zero(cells, "communication", 2).endswith("by more than noise for b = 32.")
