"""Heartbeats: what is written can be read, and of all workers only one without progress ends itself."""

import os
import threading
import time

import pytest

from labs.run import heartbeat


@pytest.fixture
def check_after(tmp_path, monkeypatch):
    """A function that passes seconds on both clocks before the next check of a worker that has taken a step."""
    now = {"time": 1000.0, "monotonic": 50.0}
    for clock in now:
        monkeypatch.setattr(time, clock, lambda clock=clock: now[clock])
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)
    monkeypatch.setattr(threading.Thread, "join", lambda thread: None)
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail("the run was ended"))
    mine = heartbeat.Monitor(tmp_path, 3, 10.0, "here")
    mine.step(1, 1)

    def after(time: float, monotonic: float) -> None:
        now["time"] += time
        now["monotonic"] += monotonic
        mine.check()

    yield after
    mine.close()


@pytest.mark.parametrize(("time", "monotonic"), [(3600, 1), (-3600, 1), (3600, 3600)],
                         ids=["clock set forward", "clock set back", "stopped"])
def test_only_a_worker_that_takes_no_step_is_ended(check_after, capsys, time, monotonic):
    def train_on() -> None:
        for _ in range(9):
            check_after(time=1, monotonic=1)

    for _ in range(3):
        check_after(time=time, monotonic=monotonic)
    with pytest.raises(pytest.fail.Exception, match="the run was ended"):
        train_on()
    assert "rank 3 on here (epoch 1, step 1): no progress for 1" in capsys.readouterr().err


def test_others_can_read_a_heartbeat_as_it_changes(tmp_path):
    mine = heartbeat.Monitor(tmp_path, 3, 60.0, "here")
    assert str(mine.heartbeat) == "rank 3 on here (before the first step)"
    mine.step(2, 13)
    assert [str(each) for each in heartbeat.read_folder(tmp_path)] == ["rank 3 on here (epoch 2, step 13)"]
    (tmp_path / "rank-00004").write_bytes(b'{"rank": 4, "ho')
    mine.close()
    (read,) = heartbeat.read_folder(tmp_path)
    assert (read.rank, read.alive) == (3, 0)
