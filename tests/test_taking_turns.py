"""Tests that count what the machine does run while no other test does."""

from __future__ import annotations

import multiprocessing
import time

import pytest

from tests import taking_turns


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Separate locks: this test may hold the others."""
    for name in ("QUEUE", "RUNNING"):
        (tmp_path / name).touch()
        monkeypatch.setattr(taking_turns, name, tmp_path / name)
    return tmp_path / "log"


def take_turns(log, name: str, alone: bool, times: int) -> None:
    """Log the beginning and the end of each turn."""
    for _ in range(times):
        with taking_turns.turn(alone):
            for moment in ("begins", "ends"):
                with log.open("a") as file:
                    file.write(f"{name} {moment}\n")
                time.sleep(0.05)


def test_one_alone_waits_for_the_others_and_they_for_it(log):
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=take_turns, args=(log, name, False, 20)) for name in ("a", "b")]
    alone = fork.Process(target=take_turns, args=(log, "alone", True, 3))
    for process in workers:
        process.start()
    while not log.exists():
        time.sleep(0.01)
    alone.start()
    for process in (*workers, alone):
        process.join(60)
        assert process.exitcode == 0
    lines = log.read_text().split("\n")[:-1]
    begins = [number for number, line in enumerate(lines) if line == "alone begins"]
    assert len(begins) == 3
    for number in begins:
        before = lines[:number]
        assert lines[number + 1] == "alone ends"
        assert all(before.count(f"{name} begins") == before.count(f"{name} ends") for name in "ab")
    assert begins[-1] < len(lines) - 10, "the others always came first"
    text = "".join(lines)
    assert "a beginsb begins" in text or "b beginsa begins" in text, "two that are not alone run at the same time"
