"""Who is where, and for whom the others wait."""

from __future__ import annotations

from labs.run import heartbeat
from labs.run.heartbeat import Place


def place(rank: int, step: int, moved: float, alive: float) -> Place:
    return Place(rank, "host", 100 + rank, 2, step, moved, alive)


def test_the_one_that_stands_still_is_named_not_those_that_wait():
    now = 100.0
    frozen = place(1, 8, moved=80, alive=80)  # Stopped: its own watching thread does not run either.
    assert heartbeat.culprit([place(0, 7, 81, 100), frozen, place(2, 7, 81, 99.5)], now, 20) == frozen
    behind = place(0, 6, moved=79, alive=100)  # In an endless loop: alive, and a step behind the others.
    assert heartbeat.culprit([behind, place(1, 7, 80, 100)], now, 20) == behind


def test_a_place_can_be_read_by_others_as_it_changes(tmp_path):
    watched = heartbeat.Watch(tmp_path, rank=3, stall_seconds=60)
    try:
        assert str(watched.place()).endswith("(before the first step)")
        watched.step(2, 13)
        (read,) = heartbeat.read_places(tmp_path)
        assert (read.rank, read.epoch, read.step) == (3, 2, 13)
        assert str(read).endswith("(epoch 2, step 13)")
        (tmp_path / "rank-00004").write_bytes(b'{"rank": 4, "ho')
        assert [each.rank for each in heartbeat.read_places(tmp_path)] == [3]
    finally:
        watched.close()
