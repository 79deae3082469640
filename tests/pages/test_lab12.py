"""Page 12: models of wasted time, and what its records are summed up to."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest

from labs.measure import kills
from labs.pages import lab12
from labs.results import reference


def test_both_models_agree_where_failures_are_rare_and_young_is_the_minimum():
    intervals = np.geomspace(600, 20_000, 2000)
    simple, full = (model(intervals, 6, 1e6, 60) for model in (lab12.first_order, lab12.exponential))
    assert simple == pytest.approx(full, rel=0.02)
    assert intervals[simple.argmin()] == pytest.approx((2 * 6 * 1e6) ** 0.5, rel=0.01)
    assert lab12.exponential(10.0, 1, 5, 1) < 1 < lab12.first_order(10.0, 1, 5, 1)


def test_random_failures_waste_what_the_model_says():
    """The clock is simulated here: lives, saves and restarts are numbers."""
    interval, save, life, restart = 0.5, 0.1, 1.0, 0.2
    lengths = np.random.default_rng(1).exponential(life, 200_000)
    kept = interval * np.maximum(0, (lengths - restart) // (interval + save))
    wasted = 1 - kept.sum() / lengths.sum()
    assert wasted == pytest.approx(lab12.exponential(interval, save, life, restart), abs=0.005)


def made_kills(every: float, seed: int) -> dict:
    rows = [{"life": 1.0, "restart": 0.2, "kept": every, "saving": 0.1, "lost": 0.7 - every, "saves": 1, "steps": 9},
            {"life": 0.1, "restart": 0.1, "kept": 0.0, "saving": 0.0, "lost": 0.0, "saves": 0, "steps": 9}]
    return {"config": {"save_every": every, "seed": seed}, "tables": {"kills": rows}}


def test_lives_are_summed_up_to_shares_of_the_clock():
    lives = lab12.kill_table([made_kills(every, seed) for every in (0.1, 0.5) for seed in (1, 2)] + [{
        "config": {"save_every": 0.1, "seed": 1}, "tables": {}}])
    assert lab12.model_constants(lives) == pytest.approx((0.1, 0.55, 0.2))
    table = lab12.waste_table(lives)
    assert table[["kept", "saving", "lost", "restart"]].sum(axis=1).tolist() == pytest.approx([1, 1])
    assert table.loc[0.5, "wasted"] == pytest.approx(1 - 0.5 / 1.1)
    assert table["T"].tolist() == [0.1, 0.5]


def test_the_parts_of_a_job_fill_its_clock():
    events = [{"seconds": 100.0, "seconds_lost": 40.0, "seconds_starting": 5.0, "steps_lost": 0},
              {"seconds": 200.0, "seconds_lost": 50.0, "seconds_starting": 6.0, "steps_lost": 2}]
    history = [{"train_seconds": 50.0, "steps": 10}, {"train_seconds": 50.0, "steps": 10}]
    run = {"tables": {"events": events}, "history": history, "metrics": {"wall_seconds": 220.0}}
    parts = lab12.job_parts(run)
    assert sum(length for _, length in parts) == pytest.approx(220 / 60), "in minutes"
    assert [use for use, _ in parts] == [*("training", "ending and queue", "restart") * 2, "training"]
    seconds = lab12.job_seconds(run)
    assert sum(seconds.values()) == pytest.approx(220)
    assert seconds["lost steps"] == 10


def elastic() -> dict:
    progress = [{"seconds": float(second), "epochs": epoch, "size": size} for second, (epoch, size) in enumerate(
        [(0.0, 2), (1.0, 2), (1.6, 2), (1.5, 1), (2.0, 1), (3.0, 1), (3.5, 1), (3.5, 2), (4.0, 2), (5.0, 2)])]
    events = [{"kind": kind, "seconds": at, "seconds_lost": 0.5, "steps_lost": steps} for kind, at, steps in (
        ("start", 0.5, 0), ("worker lost", 3.0, 3), ("worker joined", 7.0, 0))]
    history = [{"epoch": number, "steps": 10, "size": size, "train_seconds": float(number)}
               for number, size in enumerate((2, 1, 1, 2, 2), 1)]
    return {"layout": {"size": 2}, "config": {"epochs": 5, "commit_steps": 4}, "history": history,
            "tables": {"events": events, "progress": progress}}


def test_an_epoch_in_which_the_size_changes_belongs_to_no_size():
    run = elastic()
    assert [lab12.epoch_seconds(run, size) for size in (1, 2)] == [3.0, 5.0]
    assert lab12.epochs_left(run) == 1.5
    table = lab12.elastic_events([run])
    assert table["repeated"].tolist() == pytest.approx([3 * 0.35, 0])
    assert table["cost"].tolist() == pytest.approx([0.5 + 3 * 0.35, 0.5])


def test_the_gpu_run_of_the_closer_look():
    (run,) = reference.read_all("h200", "lab12_elastic")
    start, lost = run["tables"]["events"]
    assert (start["kind"], lost["kind"], lost["steps_lost"]) == ("start", "worker lost", 3)
    assert lost["seconds_lost"] == pytest.approx(0.8, abs=0.05)
    assert lab12.epoch_seconds(run, 1) == pytest.approx(0.237, abs=0.005)
    assert lab12.epochs_left(run) == 0


def in_place(path, text):
    with open(path, "w") as file:
        file.write(text)


def beside(path, text):
    in_place(path + ".part", text)
    os.replace(path + ".part", path)


def read(path):
    with open(path) as file:
        return file.read()


def test_a_kill_at_a_byte_leaves_what_was_written_before_it():
    assert lab12.load_after_kills(in_place, read, ("old", "new text"), [0, 3, 100]) == ["", "new", "new text"]
    assert lab12.load_after_kills(beside, read, ("old", "new text"), [0, 3, 100]) == ["old", "old", "new text"]


@pytest.mark.slow
def test_every_second_of_a_killed_training_is_accounted_for():
    images = np.random.default_rng(1).integers(0, 256, (64, 8, 8), np.uint8)
    lives = pd.DataFrame(map(vars, kills.study(images, np.arange(64) % 10, save_every=0.02, mean_life=3.0, kills=4,
                                               seed=1)))
    assert (lives["kept"] >= 0.02 * lives["saves"] - 1e-6).all(), "a save follows save_every seconds of steps"
    assert lives[["restart", "kept", "saving", "lost"]].min().min() >= 0
    assert (lives["life"] >= np.random.default_rng(1).exponential(3.0, 4)).all()
    assert lives["steps"].is_monotonic_increasing
    assert lives["saves"].sum() > 2
    assert lives["steps"].iloc[-1] >= lives["saves"].sum()
