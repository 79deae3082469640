"""A limit for what may wait forever."""

import contextlib
import signal


@contextlib.contextmanager
def ends(seconds: int):
    """Fail, instead of hanging, if the block takes longer than these seconds."""
    def late(*_):
        raise AssertionError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
