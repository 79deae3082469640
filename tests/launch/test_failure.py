"""Heartbeats as workers send them, and which node they show to be silent."""

from __future__ import annotations

import contextlib
import os
import time

import pytest

from labs.launch import failure
from labs.run import heartbeat, stop


@pytest.fixture
def sent(monkeypatch):
    """Return a function that reads what has been written to the error stream since its last call.

    The stream is a pipe, as in a run. pytest's `capfd` reads from a file whose offset it shares with the threads that
    write, so that they can overwrite what it is about to read.
    """
    (read, write), os_write = os.pipe(), os.write
    os.set_blocking(read, False)
    monkeypatch.setattr(os, "write", lambda descriptor, data: os_write(write if descriptor == 2 else descriptor, data))

    def new() -> str:
        with contextlib.suppress(BlockingIOError):
            return os.read(read, 65536).decode()
        return ""

    yield new
    monkeypatch.undo()
    os.close(read)
    os.close(write)


@pytest.fixture
def two_nodes(tmp_path, monkeypatch, sent):
    """Two heartbeats that simulate two nodes, and a function that forwards what they send for some seconds."""
    monkeypatch.setenv(stop.SUPERVISOR, stop.supervisor_name())
    watches = [heartbeat.Heartbeat(tmp_path, rank, 2.0, f"n{rank + 1}") for rank in (0, 1)]
    evidence = failure.Evidence(2.0)

    def listen(seconds: float) -> None:
        for _ in range(int(seconds / 0.1)):
            time.sleep(0.1)
            assert evidence.extract_heartbeats(sent()) == "", "nothing of a heartbeat reaches the terminal"

    yield watches, evidence, listen
    for each in watches:
        if not each._ended.is_set():
            each.close()


def test_a_node_that_falls_silent_is_named_with_its_place(two_nodes):
    (_, other), evidence, listen = two_nodes
    other.step(2, 7)
    other.pause()  # If this process were suspended for two seconds, the stall check would end it.
    listen(1)
    assert not evidence.silent_node(0.9)
    other._ended.set()  # Its heartbeats end, as on a node that has lost its network.
    listen(2)
    assert evidence.silent_node(0.9).startswith("node n2 has not been heard from for ")
    assert "(rank 1: epoch 2, step 7)" in evidence.silent_node(0.9)


def test_a_worker_that_has_finished_is_not_missed(two_nodes):
    """Rank 0 may still draw curves for a long time."""
    (_, other), evidence, listen = two_nodes
    listen(1)
    other.close()
    listen(2)
    assert list(evidence.last_beats) == [0]
    assert not evidence.silent_node(0.9)


def test_silence_does_not_grow_while_labs_itself_is_stopped(two_nodes):
    _, evidence, listen = two_nodes
    listen(1)
    time.sleep(1.5)  # As after Ctrl-Z, or with the lid closed: no heartbeats are read.
    assert not evidence.silent_node(0.9)


def test_heartbeats_are_taken_out_of_what_surrounds_them():
    evidence = failure.Evidence(2.0)
    line = 'epoch 1:  50%\x1elabs {"rank": 5, "host": "n1", "pid": 1, "epoch": 1, "step": 2, "moved": 1, ' \
        '"alive": 2}\x1e\nbroken \x1elabs {"rank": 6}\x1e\n'
    assert evidence.extract_heartbeats(line) == "epoch 1:  50%broken "
    assert 5 in evidence.last_beats
    assert 6 not in evidence.last_beats
