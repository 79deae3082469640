"""What a run's output shows of its failure: silent nodes and workers, and stalls."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from labs.launch import failure


class Seconds:
    """A clock that a test sets."""

    def __init__(self):
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds


@pytest.fixture
def evidence():
    evidence = failure.Evidence(8.0)
    evidence.clock = Seconds()
    return evidence


def line(rank: int, alive: float = 1, step: int = 7, **fields) -> str:
    """Return a heartbeat of a rank, as it is sent; each rank is on a node of its own."""
    known = {"rank": rank, "host": f"n{rank + 1}", "pid": 1, "epoch": 2, "step": step, "moved": step, "alive": alive}
    return f"\x1elabs {json.dumps(known | fields)}\x1e\n"


def listen(evidence: failure.Evidence, seconds: int, *ranks: int, **fields) -> None:
    """Receive a heartbeat of some ranks in each of some seconds."""
    for _ in range(seconds):
        evidence.clock.seconds += 1
        for rank in ranks:
            evidence.extract_heartbeats(line(rank, **fields))


def test_a_silent_node_is_named_unless_it_has_finished_or_labs_itself_was_stopped(evidence):
    listen(evidence, 2, 0, 1)
    evidence.clock.seconds += 100  # No heartbeats are read.
    assert "node" not in evidence.cause(1, Path("nowhere"))
    listen(evidence, 1, 0, 1)
    listen(evidence, 5, 0)
    assert evidence.cause(1, Path("nowhere")) == ("node n2 has not been heard from for 5 s (rank 1: epoch 2, step 7): "
                                                  "its link is cut, or the node is lost or frozen")
    evidence.extract_heartbeats(line(1, alive=0))
    listen(evidence, 9, 0)  # Rank 0 may still draw curves.
    assert "node" not in evidence.cause(1, Path("nowhere"))


def test_heartbeats_are_taken_out_of_what_surrounds_them(evidence):
    text = f'epoch 1:  50%{line(5)}broken \x1elabs {{"rank": 6}}\x1e\n'
    assert evidence.extract_heartbeats(text) == "epoch 1:  50%broken "
    assert list(evidence.heard) == [5]


def test_the_stalled_worker_is_named_not_those_that_wait_for_it(evidence):
    listen(evidence, 1, 0, 1, is_training=True)
    listen(evidence, 9, 0, is_training=True)  # Rank 1 is frozen.
    assert evidence.find_problem() == ("rank 1 on n2 (epoch 2, step 7): has made no progress for 9 s, the others are "
                                       "waiting for it (--stall-seconds); frozen, overloaded or lost")
    listen(evidence, 1, 0, 1, step=8, is_training=True)
    assert not evidence.find_problem(), "both have taken a step"
    listen(evidence, 1, 0, step=9, is_training=True)
    for _ in range(9):
        listen(evidence, 1, 0, step=9, is_training=True)
        evidence.extract_heartbeats(line(1, step=8, is_training=True))  # In an endless loop, behind the other.
    assert evidence.find_problem().startswith("rank 1 on n2 (epoch 2, step 8): has made no progress for 10 s")
    evidence.extract_heartbeats(line(1, step=9, is_training=False))  # Rank 1 has left the training.
    listen(evidence, 1, 0, step=9, is_training=False)
    assert not evidence.find_problem()


def test_a_worker_that_is_alone_lets_nobody_wait(evidence):
    for _ in range(10):  # It lives, and is in an endless loop.
        evidence.clock.seconds += 1
        evidence.extract_heartbeats(line(0, is_training=True))
    assert evidence.find_problem() == ("rank 0 on n1 (epoch 2, step 7): has made no progress for 9 s "
                                       "(--stall-seconds); frozen, overloaded or lost")


def warn(evidence: failure.Evidence, times: int, *missing: str) -> tuple[str, float]:
    """Receive Horovod's stall warning, every two seconds, and return the stall and the used part of its limit."""
    for _ in range(times):
        for text in ("[2026-01-01] W stall_inspector.cc:105] One or more tensors were submitted", "Missing ranks:",
                     *missing):
            assert evidence.note_stall(f"{text}\n")
        assert not evidence.note_stall("a line of the script")
        evidence.clock.seconds += 2
    return evidence.stall()


BOTH = "rank 0 on n1 (epoch 2, step 7), rank 1 on n2 (epoch 2, step 7)"


@pytest.mark.parametrize(("missing", "limit", "text"), [
    (["1: [loss]"], 16, "rank 1 on n2 (epoch 2, step 7): the other ranks have waited for 8 s (rank 0 on n1 (epoch 2, "
                        "step 7); --stall-seconds); frozen, overloaded or lost"),
    (["0: [g1, g2]", "1: [loss]"], 8, f"the ranks have waited for each other for 8 s ({BOTH}; --stall-seconds); let "
                                      "all ranks take the same number of steps"),
], ids=["one is late", "deadlock"])
def test_a_stall_says_which_ranks_wait_where_and_ends(evidence, missing, limit, text):
    listen(evidence, 1, 0, 1)
    assert warn(evidence, 3, *missing) == (text, 8 / limit)
    assert warn(evidence, limit // 2, *missing)[1] > 1
    evidence.clock.seconds += 60  # Horovod warns no more.
    assert evidence.stall() == ("", 0)
    assert warn(evidence, 1, *missing)[1] < 1, "the next stall begins anew"


def test_silence_of_one_and_of_all_is_an_error_after_twice_the_limit_but_not_while_nobody_can_hear(evidence):
    listen(evidence, 2, 0, 1)
    listen(evidence, 17, 0)
    assert evidence.find_problem() == "rank 1 on n2 (epoch 2, step 7): no heartbeat for 17 s; frozen or overloaded"
    listen(evidence, 1, 1)
    evidence.clock.seconds += 17
    assert re.fullmatch(r"no worker has sent a heartbeat for 18 s: .* frozen; last heartbeats: .*",
                        evidence.find_problem())
    with evidence.blocked():  # Ctrl-S
        assert not evidence.find_problem()
        evidence.clock.seconds += 100
    assert not evidence.find_problem()
