"""Heartbeats: what is written can be read, and the stalled worker is the one that is named."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from labs.run import heartbeat
from labs.run.heartbeat import Beat


def beat(rank: int, step: int, moved: float, alive: float) -> Beat:
    return Beat(rank, "host", 100 + rank, 2, step, moved, alive)


def test_the_stalled_worker_is_named_not_those_that_wait_for_it():
    before = {0: 100, 1: 80, 2: 99.5}
    frozen = beat(1, 8, moved=80, alive=80)  # Stopped: its heartbeat thread does not run either.
    assert heartbeat.slowest_worker([beat(0, 7, 81, 110), frozen, beat(2, 7, 81, 109.5)], before) == frozen
    behind = beat(0, 6, moved=79, alive=110)  # In an endless loop: alive, and a step behind the others.
    assert heartbeat.slowest_worker([behind, beat(1, 7, 80, 110)], before) == behind


def test_a_stop_is_subtracted_from_the_step_that_it_interrupted_and_from_no_other(tmp_path, monkeypatch):
    now = [50.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    heart = heartbeat.Heartbeat(tmp_path, rank=0, stall_seconds=60)

    def pass_seconds(seconds: float, stopped: bool = False) -> None:
        now[0] += seconds
        if stopped:
            signal.raise_signal(signal.SIGCONT)

    with heart.note_stops():
        pass_seconds(7, stopped=True)  # Before the epoch.
        heart.begin_steps()
        pass_seconds(9, stopped=True)  # In the first step, which is long anyway: TensorFlow traces it.
        heart.step(1, 1)
        assert heart.stopped_seconds == 0
        for step, seconds in enumerate((2, 12, 2), 2):
            pass_seconds(seconds, stopped=seconds > 2)
            heart.step(1, step)
        assert heart.stopped_seconds == 10
    heart.close()


def test_the_pace_is_that_of_steps_without_evaluations_and_what_lies_between_epochs(tmp_path, monkeypatch):
    now = [50.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    heart = heartbeat.Heartbeat(tmp_path, rank=0, stall_seconds=60)

    def pace(seconds: float, epoch: int, step: int, waited: float = 0.0) -> tuple[float, float, float]:
        now[0] += seconds
        heart.step(epoch, step, waited)
        return heart.beat.step_seconds, heart.beat.exchange_seconds, heart.beat.between_seconds

    assert pace(9, 1, 5, 1.0) == (0, 0, 0), "TensorFlow traces the first step; a run may continue within an epoch"
    assert pace(4, 1, 7, 2.0) == (2, 0.5, 0)
    assert pace(7, 1, 8, 3.5) == pytest.approx((11 / 3, 2.5 / 3, 0))
    assert pace(20, 1, 8) == pytest.approx((11 / 3, 2.5 / 3, 0)), "an evaluation"
    assert pace(1, 2, 1, 4.0) == pytest.approx((11 / 3, 2.5 / 3, 21))
    assert pace(1, 2, 2, 4.5) == pytest.approx((3, 0.75, 21))
    heart.close()


@pytest.fixture
def rounds(tmp_path, monkeypatch):
    """A heartbeat after its first step, and a function that passes seconds on both clocks before its next round."""
    now = {"time": 1000.0, "monotonic": 50.0}
    for clock in now:
        monkeypatch.setattr(time, clock, lambda clock=clock: now[clock])
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)
    monkeypatch.setattr(threading.Thread, "join", lambda thread: None)
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail("the run was ended"))
    heart = heartbeat.Heartbeat(tmp_path, rank=0, stall_seconds=10)
    heart.step(1, 1)

    def after(time: float, monotonic: float) -> None:
        now["time"] += time
        now["monotonic"] += monotonic
        heart.round()

    yield after
    heart.close()


@pytest.mark.parametrize(("time", "monotonic"), [(3600, 1), (-3600, 1), (3600, 3600)],
                         ids=["clock set forward", "clock set back", "stopped"])
def test_no_healthy_worker_is_blamed(rounds, time, monotonic):
    for _ in range(3):
        rounds(time=time, monotonic=monotonic)


def test_ten_seconds_without_a_step_are_a_stall(rounds, capsys):
    for _ in range(10):
        rounds(time=1, monotonic=1)
    with pytest.raises(pytest.fail.Exception, match="the run was ended"):
        rounds(time=1, monotonic=1)
    assert "(epoch 1, step 1): has made no progress for 11 s" in capsys.readouterr().err


def test_others_can_read_a_heartbeat_as_it_changes(tmp_path):
    heart = heartbeat.Heartbeat(tmp_path, rank=3, stall_seconds=60)
    try:
        assert str(heart.beat).endswith("(before the first step)")
        heart.step(2, 13)
        (read,) = heartbeat.read_beats(tmp_path)
        assert (read.rank, read.epoch, read.step) == (3, 2, 13)
        assert str(read).endswith("(epoch 2, step 13)")
        (tmp_path / "rank-00004").write_bytes(b'{"rank": 4, "ho')
        assert [each.rank for each in heartbeat.read_beats(tmp_path)] == [3]
    finally:
        heart.close()
