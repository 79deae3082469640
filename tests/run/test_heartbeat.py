"""Heartbeats: what is written can be read, a worker without progress ends itself, and a stop is no training time."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from labs.run import heartbeat


def monitor(folder, stall_seconds: float = 60.0) -> heartbeat.Monitor:
    return heartbeat.Monitor(3, folder=folder, stall_seconds=stall_seconds)


def test_a_stop_is_subtracted_from_the_step_that_it_interrupted_and_from_no_other(tmp_path, monkeypatch):
    now = [50.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    mine = monitor(tmp_path)

    def pass_seconds(seconds: float, stopped: bool = False) -> None:
        now[0] += seconds
        if stopped:
            signal.raise_signal(signal.SIGCONT)

    with mine.note_stops():
        pass_seconds(7, stopped=True)  # Before the epoch.
        mine.begin_steps()
        pass_seconds(9, stopped=True)  # In the first step, which is long anyway: TensorFlow traces it.
        mine.step(1, 1)
        assert mine.stopped_seconds == 0
        for step, seconds in enumerate((2, 12, 2), 2):
            pass_seconds(seconds, stopped=seconds > 2)
            mine.step(1, step, waited=0.5 * step)
        assert mine.stopped_seconds == 10
    assert (mine.heartbeat.step_seconds, mine.heartbeat.exchange_seconds) == (2, 0.5)
    pass_seconds(30)
    mine.step(2, 1)
    assert mine.heartbeat.step_seconds == 2, "what lies between two epochs is no step"
    mine.close()


@pytest.fixture
def check_after(tmp_path, monkeypatch):
    """A monitor after its first step, and a function that passes seconds on both clocks before its next check."""
    now = {"time": 1000.0, "monotonic": 50.0}
    for clock in now:
        monkeypatch.setattr(time, clock, lambda clock=clock: now[clock])
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)
    monkeypatch.setattr(threading.Thread, "join", lambda thread: None)
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail("the run was ended"))
    mine = monitor(tmp_path, stall_seconds=10)
    mine.step(1, 1)

    def after(time: float, monotonic: float) -> None:
        now["time"] += time
        now["monotonic"] += monotonic
        mine.check()

    yield after
    mine.close()


@pytest.mark.parametrize(("time", "monotonic"), [(3600, 1), (-3600, 1), (3600, 3600)],
                         ids=["clock set forward", "clock set back", "stopped"])
def test_no_healthy_worker_is_ended(check_after, time, monotonic):
    for _ in range(3):
        check_after(time=time, monotonic=monotonic)


def test_ten_seconds_without_a_step_are_a_stall(check_after, capsys):
    for _ in range(10):
        check_after(time=1, monotonic=1)
    with pytest.raises(pytest.fail.Exception, match="the run was ended"):
        check_after(time=1, monotonic=1)
    assert "(epoch 1, step 1): has made no progress for 11 s" in capsys.readouterr().err


def test_others_can_read_a_heartbeat_as_it_changes(tmp_path):
    mine = monitor(tmp_path)
    assert str(mine.heartbeat).endswith("(before the first step)")
    mine.step(2, 13)
    (read,) = heartbeat.read_folder(tmp_path)
    assert (read.rank, read.epoch, read.step) == (3, 2, 13)
    assert str(read).endswith("(epoch 2, step 13)")
    (tmp_path / "rank-00004").write_bytes(b'{"rank": 4, "ho')
    assert [each.rank for each in heartbeat.read_folder(tmp_path)] == [3]
    mine.close()
    assert heartbeat.read_folder(tmp_path)[0].alive == 0
