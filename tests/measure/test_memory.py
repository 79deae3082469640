"""What a trial holds is seen, what is too much is killed, and the end is found by bisection."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.measure import memory
from labs.run.errors import LabError


def hold(mebibytes: int) -> None:
    np.ones(mebibytes * 2**17)
    time.sleep(0.1)


def fail() -> None:
    raise ValueError("of another kind")


def fail_in_cudnn() -> None:
    """Fail as a GPU did on which a convolution found no memory for its intermediate values."""
    raise RuntimeError("UNKNOWN:  CUDNN failed to allocate the scratch space for the runner")


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
def test_exceeding_the_limit_is_a_result():
    result = memory.probe(hold, 3000, limit_mb=600)
    assert not result.fits
    assert 600 < result.peak_mb < 3000, "it was ended on its way"
    assert result.cause == "more than 600 MiB"


def test_a_convolution_without_memory_to_work_in_is_too_much_and_any_other_failure_is_an_error():
    assert not memory.probe(fail_in_cudnn).fits
    with pytest.raises(LabError, match="trying what fits failed: ValueError: of another kind"):
        memory.probe(fail)


@given(st.integers(0, 5000), st.integers(1, 300))
def test_bisection_finds_the_end(end, first):
    tried = []

    def fits(value: int) -> bool:
        tried.append(value)
        return value <= end

    result = memory.largest_that_fits(fits, first)
    assert result <= end
    assert end - result < max(1, result / 16)
    assert len(tried) == len(set(tried)) < 30, "nothing is tried twice"
    assert all(value >= 1 for value in tried)
