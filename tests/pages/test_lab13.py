"""Page 13: its tables, from made records."""

from __future__ import annotations

import pytest

from labs.pages import lab13


def run(plain: float, syncbn: float, seed: int = 1) -> dict:
    steps = {"plain": plain, "SyncBN": syncbn}
    return {"config": {"seed": seed}, "tables": {
        "rounds": [{"round": number, "method": method, "compute_seconds": 0.004 + noise, "step_seconds": step + noise}
                   for method, step in steps.items() for number, noise in enumerate((0.0, 0.002, -0.001))],
        "messages": [{"method": method, "exchanges_per_step": 1, "bytes_per_step": 8, "distance": 0.1}
                     for method in steps]}}


RUNS = [run(0.0050, 0.0070, 1), run(0.0051, 0.0072, 2), run(0.0049, 0.0069, 3)]


def test_a_table_of_methods_has_medians_of_a_run_and_means_of_runs():
    table = lab13.method_table(RUNS)
    assert table["compute"].tolist() == pytest.approx([4.0, 4.0])
    assert table["exchange"].tolist() == pytest.approx([1.0, 9.1 / 3])
    assert (table["exchange_low"] < table["exchange"]).all()
    assert lab13.method_table(RUNS[:1])["exchange_low"].isna().all()


def test_a_difference_needs_an_interval_without_zero():
    assert lab13.compare_exchanges(RUNS, "SyncBN", "plain", 1) == "longer"
    assert lab13.compare_exchanges(RUNS, "plain", "SyncBN", 1) == "shorter"
    two = [run(0.005, 0.006, 1), run(0.006, 0.005, 2)]
    assert lab13.compare_exchanges(two, "SyncBN", "plain", 1) == "not resolved"


def test_what_each_worker_keeps_is_the_formula_of_the_exercise():
    axes = lab13.memory_figure(7e9, 8, 80e9).axes[0]
    assert [text.get_text() for text in axes.texts] == ["112 GB", "63 GB", "38.5 GB", "14 GB"]


def test_a_skipped_framework_has_the_row_of_a_run_with_the_same_seed_or_none():
    def run(seed, *rows):
        return {"config": {"seed": seed}, "tables": {"frameworks": [
            {"framework": name, "skipped": skipped, "difference": value} for name, skipped, value in rows]}}

    earlier = [run(1, ("A", "", 1.0), ("B", "", 1.1)), run(3, ("A", "", 3.0), ("C", "", 3.1))]
    ours = run(1, ("A", "failed: it", None), ("B", "", 2.0), ("C", "skipped", None))
    table = lab13.framework_table(ours, earlier)
    assert table["difference"].to_dict() == {"A": 1.0, "B": 2.0}
    assert table["from"].to_dict() == {"A": "reference run", "B": "this run"}
