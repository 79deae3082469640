"""Heartbeats: what is written can be read, and the stalled worker is the one that is named."""

from __future__ import annotations

from labs.run import heartbeat
from labs.run.heartbeat import Beat


def beat(rank: int, step: int, moved: float, alive: float) -> Beat:
    return Beat(rank, "host", 100 + rank, 2, step, moved, alive)


def test_the_stalled_worker_is_named_not_those_that_wait_for_it():
    now = 100.0
    frozen = beat(1, 8, moved=80, alive=80)  # Stopped: its heartbeat thread does not run either.
    assert heartbeat.culprit([beat(0, 7, 81, 100), frozen, beat(2, 7, 81, 99.5)], now, 20) == frozen
    behind = beat(0, 6, moved=79, alive=100)  # In an endless loop: alive, and a step behind the others.
    assert heartbeat.culprit([behind, beat(1, 7, 80, 100)], now, 20) == behind


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
