"""Lab 9: a search that can be broken off, and the tuned model on several workers."""

import dataclasses
import json

import pytest

from labs import lab09_fruits as lab
from labs.run import local
from labs.run.command_line import to_argv
from labs.run.fields import Options
from tests.exercises.solved import solved

TINY = dataclasses.replace(lab.PRESETS["demo"], epochs=3, image_size=16)


@pytest.mark.slow
def test_a_search_broken_off_asks_the_same_and_keeps_its_answers(tmp_path, monkeypatch):
    config, train, count = dataclasses.replace(TINY, trials=5, threads=0), lab.train, []

    def interrupted(*arguments, **rest):
        count.append(1)
        if len(count) == 5 + 3:
            raise KeyboardInterrupt
        return train(*arguments, **rest)

    monkeypatch.setattr(lab, "train", interrupted)
    record = lab.run(config, Options(name="it", results=tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        lab.run(config, Options(name="it", results=tmp_path / "broken"))
    lab.run(config, Options(name="it", results=tmp_path / "broken"))
    assert len(count) == 5 + 3 + 3, "a finished trial was run again"
    whole, broken = ([json.loads(path.read_text()) for path in sorted(tmp_path.glob(f"{name}/*/search-*/record.json"))]
                     for name in ("whole", "broken"))
    assert [each["config"] for each in broken] == [each["config"] for each in whole]
    assert {len(each["history"]) for each in whole} > {3}, "no trial was pruned"
    best = max(each["history"][-1]["val_accuracy"] for each in whole if len(each["history"]) == 3)
    assert record["history"][-1]["val_accuracy"] == best


@pytest.mark.workers
def test_the_questions_are_graded_from_runs_of_one_worker_and_two(tmp_path, samples):
    config = dataclasses.replace(TINY, data=str(samples / "fruits-sample"), recompute_statistics=True)
    words = [*to_argv(config), "--results", str(tmp_path)]
    local.run(lab, [*words, "--scaling", "none"], workers=1)
    record = local.run(lab, words, workers=2, oversubscribe=True)
    solved("lab09.q1", "lab09.q3", results_root=tmp_path)
    assert record["metrics"]["leak_alike"] > 100
    assert record["metrics"]["test_accuracy"] > 0.5
    assert record["metrics"]["test_accuracy_recomputed"] > 0.5
