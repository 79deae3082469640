"""What a trial holds is seen, what is too much is killed, and the end is found by bisection."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.measure import memory
from labs.run.errors import LabError


def hold(mebibytes: int) -> None:
    np.ones(mebibytes * 2**17)
    time.sleep(0.1)


def hold_in_tensorflow(mebibytes: int) -> None:
    import tensorflow as tf

    float(tf.reduce_sum(tf.ones(mebibytes * 2**18)))


def fail() -> None:
    raise ValueError("of another kind")


@pytest.mark.alone  # The memory of other tests decides which pages of a trial are large.
@pytest.mark.slow
def test_the_peak_of_a_trial_is_what_it_held():
    small, large = memory.probe(hold, 10), memory.probe(hold, 410)
    assert small.fits
    assert large.fits
    again = memory.probe(hold, 10)
    # A kernel that is short of memory takes unused pages of TensorFlow back, which all trials share.
    assert any(large.peak_mb - each.peak_mb == pytest.approx(400, abs=20) for each in (small, again))
    assert again.peak_mb < small.peak_mb + 20, "trials do not see each other"


@pytest.mark.slow
@pytest.mark.parametrize("action", [hold, hold_in_tensorflow])
def test_too_much_is_a_result(action):
    result = memory.probe(action, 3000, limit_mb=600)
    assert not result.fits
    assert 600 < result.peak_mb < 3000, "it was ended on its way"
    assert result.cause == "more than 600 MiB"
    assert memory.probe(action, 10, limit_mb=600).fits


def test_any_other_failure_is_none():
    with pytest.raises(LabError, match="trying what fits failed: ValueError: of another kind"):
        memory.probe(fail)


def test_trials_at_the_same_time_keep_their_exit_codes(monkeypatch):
    """`Process.start` also reads the exit codes of ended processes: here, while another thread reads the same code."""
    read, reading, other_trial = forkserver.read_signed, threading.Event(), threading.Event()
    watched = []  # Two reads of the process that is killed: its PID, then its exit code.

    def read_late(status: int) -> int:
        if threading.current_thread().name.endswith("_0"):
            watched.append(status)
            if len(watched) == 2:
                reading.set()
                other_trial.wait(1)
        return read(status)

    monkeypatch.setattr(forkserver, "read_signed", read_late)
    with ThreadPoolExecutor(2, "trial") as threads:
        killed = threads.submit(memory.probe, hold, 3000, limit_mb=600)
        assert reading.wait(60)
        other = threads.submit(memory.probe, hold, 10)
        other.add_done_callback(lambda _: other_trial.set())
        assert killed.result().cause == "more than 600 MiB"
        assert other.result().fits


@pytest.mark.slow
def test_freed_blocks_are_given_back():
    """Blocks of 20 MiB, which glibc would keep after the first: 10 at once, then 10 others of another size."""
    assert memory.probe(several_times).peak_mb - memory.probe(hold, 1).peak_mb < 300


def several_times() -> None:
    for size in (20, 25, 30):
        blocks = [np.ones(size * 2**17 // 2) for _ in range(10)]
        del blocks


@given(st.integers(0, 5000), st.integers(1, 300), st.sampled_from([0, 1 / 16, 1 / 4]))
def test_bisection_finds_the_end(end, first, precision):
    tried = []

    def fits(value: int) -> bool:
        tried.append(value)
        return value <= end

    result = memory.largest_that_fits(fits, first, most=10_000, precision=precision)
    assert result <= end
    assert end - result < max(1, precision * result) or (precision == 0 and result == end)
    assert len(tried) == len(set(tried)), "nothing is tried twice"
    assert len(tried) < 30
    assert all(value >= 1 for value in tried)
