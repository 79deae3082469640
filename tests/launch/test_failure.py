"""What the heartbeats of a run show of its failure: silent workers, and stalls."""

import json
import re

import pytest

from labs.run import failure


class Seconds:
    """A clock that a test sets."""

    seconds = 0.0

    def now(self) -> float:
        return self.seconds


@pytest.fixture
def listen(tmp_path):
    """Write a heartbeat of some ranks in each of some seconds, and return what the supervisor concludes."""
    (tmp_path / "heartbeats").mkdir()
    old = {"rank": 9, "host": "n9", "epoch": 1, "alive": 1, "is_training": True}
    (tmp_path / "heartbeats/rank-00009").write_text(json.dumps(old))  # Of the run that this one resumes.
    diagnosis, times = failure.Diagnosis(8.0, tmp_path), iter(range(1, 999))
    diagnosis.clock = Seconds()

    def after(seconds: int, *ranks: int, step: int = 7, **fields) -> str:
        for _ in range(seconds):
            diagnosis.clock.seconds += 1
            alive = next(times)
            for rank in ranks:
                known = {"rank": rank, "host": f"n{rank + 1}", "epoch": 2, "step": step, "moved": step,
                         "alive": alive, "is_training": True} | fields
                (tmp_path / f"heartbeats/rank-{rank:05d}").write_text(json.dumps(known))
            problem = diagnosis.find_problem()
        return problem

    return after


RANK_1 = r"rank 1 on n2 \(epoch 2, step {}\): no progress for {} s{} \(--stall-seconds\); frozen, .*"
WAITING = ", the others are waiting"


def test_the_stalled_worker_is_named_not_those_that_wait_for_it(listen):
    assert not listen(1, 0, 1)
    assert re.fullmatch(RANK_1.format(7, 9, WAITING), listen(9, 0)), "rank 1 is frozen"
    assert not listen(1, 0, 1, step=8), "both have taken a step"
    listen(1, 0, step=9)
    for _ in range(8):
        listen(1, 0, step=9)
        last = listen(1, 1, step=8)  # In an endless loop, behind the other.
    assert re.fullmatch(RANK_1.format(8, r"\d+", WAITING), last)
    listen(1, 1, step=9, is_training=False)  # Rank 1 has left the training.
    assert not listen(1, 0, step=9, is_training=False)


def test_where_no_worker_is_behind_all_are_named(listen):
    """A link between nodes is cut: each worker waits for the others, and all live."""
    both = r"rank 0 on n1 \(.*\), rank 1 on n2 \(.*\): no progress for 9 s \(--stall-seconds\); .* link is lost"
    listen(1, 0, 1)
    assert re.fullmatch(both, listen(9, 0, 1))
    assert re.fullmatch(both.replace("9", "13"), listen(4)), "and where all are silent"


def test_a_worker_that_does_not_train_may_be_silent_for_twice_as_long(listen):
    listen(2, 0, 1, is_training=False)
    assert not listen(16, 0, is_training=False)
    assert re.fullmatch(RANK_1.format(7, r"\d+", WAITING), listen(1, 0, is_training=False))
    assert not listen(1, 0, 1, alive=0), "both have finished"


def test_workers_that_do_not_start_are_given_up(listen):
    assert not listen(300)
    assert listen(1) == "no worker has started in 301 s; `labs check` looks for the cause"
