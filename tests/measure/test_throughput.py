"""Seconds of a step, and how busy all workers are together."""

import time

import pytest

from labs.measure import throughput
from labs.measure.utilization import Utilization, combine
from labs.results import run_record


def test_a_step_is_timed_by_its_steps_and_not_by_the_images_per_second():
    """1,438 images in batches of 1,024 are two steps of 1,024: the second is padded and takes as long as the first."""
    row = {"images": 1438, "steps": 2, "train_seconds": 1.0}
    history = [row | {"train_seconds": 99}, row, row]
    assert throughput.seconds_per_step(history) == 0.5
    assert run_record.epoch_timings(history)["images_per_sec"] == 1438
    assert throughput.seconds_per_step(history[:1]) is None


@pytest.mark.alone
def test_cpu_percent_is_the_share_of_the_cores(monkeypatch):
    """One of four cores is busy for three quarters of the time. Entering the block first imports pynvml: 30 ms."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    with Utilization(interval=0.05) as busy:
        cpu, wall = time.process_time(), time.perf_counter()
        while time.perf_counter() < wall + 0.6:
            pass
        time.sleep(0.2)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert busy.summary()["cpu_percent"] == pytest.approx(100 * cpu / wall / 4, abs=3)
    assert busy.summary(skip=1e9) == busy.summary(), "nothing is left: all, then"
    assert busy.summary()["memory_bytes"] > 1e6


def test_workers_together():
    one = {"cpu_percent": 90.0, "memory_bytes": 1e9, "gpu0_percent": 50.0}
    other = {"cpu_percent": 70.0, "memory_bytes": 3e9, "gpu0_percent": 100.0}
    assert combine([one, other], nodes=1) == {"cpu_percent": 80.0, "memory_bytes": 4e9, "gpu_percent": 75.0}
    full, fuller = one | {"gpu0_memory_bytes": 2e9}, other | {"gpu0_memory_bytes": 5e9}
    assert combine([full, fuller], nodes=1)["gpu_memory_bytes"] == 5e9
    assert combine([one, other], nodes=2)["memory_bytes"] == 2e9
