"""Page 3: what rules do to the accuracy, from made records."""

from __future__ import annotations

import pandas as pd
import pytest

from labs.pages import lab03
from labs.run.errors import LabError

LOST = {"none": 0.1, "sqrt": 0.05, "linear": 0.01}


def record(seed: int, study: str = "rules") -> dict:
    keys = [(1, "none", 0.0), *((8, scaling, climb) for scaling, climb in lab03.RULES.values())]
    rows = [{"k": k, "scaling": scaling, "warmup_epochs": float(climb), "base_lr": 0.01, "dead": 0.25,
             "val_accuracy": 0.6 + 0.01 * seed - LOST[scaling] * (k > 1)} for k, scaling, climb in keys]
    miss = [{"epochs": epochs, "repeat": repeat, "k": 8, "miss": 0.1 * epochs + 0.2 * repeat}
            for epochs in (0, 3) for repeat in (0, 1)]
    return {"config": {"study": study, "optimizer": "sgd", "seed": seed}, "metrics": {"validation_images": 100},
            "tables": {"settings": rows if study == "rules" else rows[:1], "miss": miss}}


OTHER = {"config": {"optimizer": "sgd", "seed": 1}, "metrics": {}, "tables": {}}
RUNS = [record(1), record(2), record(3, "search"), OTHER]


def test_the_baseline_belongs_to_every_rule():
    table = lab03.study_table(RUNS, "rules", "sgd")
    assert table.groupby("rule")["k"].apply(list).to_dict() == {rule: [1, 8, 1, 8] for rule in lab03.RULES}
    assert len(lab03.study_table(RUNS, "search", "sgd")) == 1
    with pytest.raises(LabError, match="labs sweep lab03 --preset rules"):
        lab03.study_table(RUNS, "rules", "adam")


def test_rules_are_compared_within_a_seed():
    table = lab03.study_table(RUNS, "rules", "sgd")
    assert lab03.change(table, "linear", "square root", 8) == "+0.040 (0.010 to 0.070), more than noise"
    assert lab03.mean_misses(RUNS)[8].mean().to_dict() == pytest.approx({0: 0.1, 3: 0.4})


def test_a_rule_keeps_the_accuracy_only_as_far_as_all_smaller_batches_do():
    means = {"no scaling": (0.6, 0.5, 0.6), "square root": (0.6, 0.58, 0.5), "square root, warmup": (0.6, 0.59, 0.56),
             "linear": (0.6, 0.59, 0.58), "linear, warmup": (0.6, 0.6, 0.5)}
    table = pd.DataFrame([{"seed": seed, "rule": rule, "k": k, "val_accuracy": accuracy + 0.001 * seed}
                          for rule, each in means.items() for k, accuracy in zip((1, 2, 8), each, strict=True)
                          for seed in range(5)])
    _, until = lab03.largest_factors(table, 0.03)
    assert until == {"no scaling": 1, "square root": 2, "square root, warmup": 2, "linear": 8, "linear, warmup": 2}
    said = lab03.accuracy_text(table, 0.03)
    assert said.startswith("**Linear keeps the accuracy longest: up to $k$ = 8.** The others keep it up to: ")
    assert "no scaling 1" in said
    assert "At $k$ = 8, warmup changes linear by -0.080" in said
