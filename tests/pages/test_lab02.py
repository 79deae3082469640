"""Page 2: report M's speedups, wrong shards, and sentences that follow the figures."""

from __future__ import annotations

import pytest

from labs.pages import lab02
from labs.results import reference
from labs.run.errors import LabError

KEPT = [run for run in reference.read_all("two-cores", "lab02_horovod") if run["config"]["code"] == "kit"]


def trained(accuracies: dict[tuple[str, bool], float], noise: float = 0.001) -> list[dict]:
    """Return records of the study of orders, five seeds each."""
    return [KEPT[0] | {"config": KEPT[0]["config"] | {"code": "textbook", "order": order, "reshuffle": reshuffle,
                                                      "seed": seed},
                       "metrics": {"test_accuracy": accuracy + noise * ((seed + len(order)) * (1 + reshuffle) % 3)}}
            for (order, reshuffle), accuracy in accuracies.items() for seed in range(1, 6)]


ORDERS = trained({("sharded", True): 0.94, ("sharded", False): 0.94, ("own_seeds", True): 0.93,
                  ("own_seeds", False): 0.92, ("unsharded", True): 0.92, ("unsharded", False): 0.88})


def test_report_ms_speedups_are_over_one_gpu():
    """T(4) / T(2) = 0.536 was printed as "0.53 times faster"."""
    speedups = lab02.report_m()["speedup"][40]
    assert speedups.round(2).tolist() == [1.0, 1.2, 2.24]
    assert speedups[4] / speedups[2] == pytest.approx(1.86, abs=0.01)


def test_runs_of_other_studies_change_neither_table():
    alone, together = lab02.reference_table(KEPT), lab02.reference_table(KEPT + ORDERS)
    assert together["speedup"].equals(alone["speedup"])
    assert lab02.order_table(KEPT + ORDERS).equals(lab02.order_table(ORDERS))
    with pytest.raises(LabError, match="--only orders"):
        lab02.order_table(KEPT)


def test_workers_are_told_from_one_within_the_seeds():
    def ended(*accuracies):
        return [KEPT[0] | {"config": KEPT[0]["config"] | {"epochs": 40, "seed": number % 3},
                           "layout": KEPT[0]["layout"] | {"size": size}, "metrics": {"test_accuracy": accuracy}}
                for number, (size, accuracy) in enumerate(accuracies)]

    one = [(1, 0.90), (1, 0.92), (1, 0.91)]
    said = lab02.compare_accuracies(ended(*one, (2, 0.91), (2, 0.89), (2, 0.92), (4, 0.879), (4, 0.902), (4, 0.890)))
    assert said.startswith("2 workers minus one: not resolved: -0.00"), "one seed is far off"
    assert "4 workers minus one: more than noise: -0.020" in said, "all seeds are as far below"


def test_differences_are_within_a_seed_and_corrected_for_their_number():
    table = lab02.order_table(ORDERS)
    assert table["lost"]["unsharded", False] == pytest.approx(0.06, abs=0.002)
    assert table["noise"].tolist() == [True, True, False, False, False, False]
    assert "not resolved" in lab02.order_change(table.loc[("sharded", False)])
    assert "costs nothing measurable" in lab02.order_lesson(table)
    bad = lab02.order_table(trained({("sharded", True): 0.94, ("sharded", False): 0.9,
                                          ("unsharded", False): 0.88}))
    assert "changes the accuracy by -0.04" in lab02.order_lesson(bad)


def test_an_impossible_efficiency_is_said():
    runs = {size: {"run": "mine", "layout": {"size": size}, "machine": {}, "history": [
        {"epoch": epoch, "steps": 46 // size, "train_seconds": 2.0} for epoch in (1, 2, 3)]} for size in (1, 2)}
    good = lab02.speedup_text(runs, {1: 2.0, 2: 1.3}, {1: 1.0, 2: 1.54}, {1: 1.0, 2: 0.77})
    assert "1.54 times as fast" in good
    assert "56.5 ms instead of 43.5 ms: the exchange" in good
    bad = lab02.speedup_text(runs, {1: 2.0, 2: 0.9}, {1: 1.0, 2: 2.22}, {1: 1.0, 2: 1.11})
    assert "above 1" in bad
    assert "as fast" not in bad
    runs[2]["history"][1]["train_seconds"] = 4.0
    busy = lab02.speedup_text(runs, {1: 2.0, 2: 1.3}, {1: 1.0, 2: 1.54}, {1: 1.0, 2: 0.77})
    assert "Disturbed: mine: the slowest of 2 epochs took 2 times as long as the fastest. Measure again" in busy
    assert "1.54 times as fast" not in busy
