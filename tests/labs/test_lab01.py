"""Lab 1 on real digits, and the sampler that watches it."""

from __future__ import annotations

import math
import time
import types

import pytest

from labs import lab01_baseline as lab
from labs.datasets.sharding import shard, steps_per_epoch
from labs.launch import local
from labs.measure import throughput
from labs.measure.utilization import Utilization
from labs.run.errors import LabError
from tests.course.exercises.solved import solved


@pytest.fixture(autouse=True)
def _own_results(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "results"))


@pytest.mark.workers
def test_one_worker_learns_the_digits_and_tells_how_busy_it_was():
    record = local.run(lab, ["--epochs", "4", "--batch-size", "64"], workers=1)
    metrics = record["metrics"]
    assert metrics["steps"] == 4 * math.ceil(record["history"][0]["images"] / 64)
    assert metrics["test_accuracy"] > 0.85
    assert 0 < metrics["cpu_percent"] < 105
    assert ("gpu0_percent" in metrics) == bool(record["layout"]["gpus"])
    assert record["layout"]["size"] == 1
    solved("lab01.q1", "lab01.q2")


def test_a_step_is_timed_by_its_steps_and_not_by_the_images_per_second():
    """1,438 images in batches of 1,024 are two steps of 1,024: the second is padded and takes as long as the first."""
    images, batch, seconds = 1438, 1024, 0.5
    steps = steps_per_epoch(images, batch, 1)
    padded = shard(images, batch, 0, 1, epoch=0, seed=1)
    assert padded.rows.shape == (2, 1024)
    assert int((padded.weights == 0).sum()) == 2 * 1024 - images
    row = {"images": images, "steps": steps, "train_seconds": steps * seconds}
    history = [row | {"train_seconds": 99}, row, row]
    assert throughput.seconds_per_step(history) == pytest.approx(seconds)
    assert batch / throughput.images_per_sec(history) > 1.4 * seconds, "this is not a step"
    assert throughput.seconds_per_step(history[:1]) is None


@pytest.mark.workers
def test_the_baseline_of_two_workers_is_refused():
    with pytest.raises(LabError, match="lab 1 measures one worker; add --workers 1"):
        local.run(lab, [], workers=2, oversubscribe=True)


@pytest.mark.workers
def test_a_run_on_some_of_the_images_has_only_full_batches():
    record = local.run(lab, ["--epochs", "2", "--images", "256", "--batch-size", "64"], workers=1)
    assert [(row["images"], row["steps"]) for row in record["history"]] == [(256, 4)] * 2


def test_paper_is_the_reports_setting():
    paper = lab.PRESETS["paper"]
    assert (paper.data, paper.images, paper.batch_size, paper.epochs) == ("real", 0, 128, 40), "0: all of them"
    assert paper.epochs * steps_per_epoch(60_000, paper.batch_size, 1) == 18_760  # Not 18,750.


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@pytest.mark.alone
def test_cpu_percent_is_the_share_of_the_cores(monkeypatch):
    """The clocks are read inside the block: entering it imports pynvml, for 30 ms of CPU the first time."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    with Utilization(interval=0.05) as busy:
        cpu, wall = time.process_time(), time.perf_counter()
        spin(0.6)
        time.sleep(0.2)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert busy.summary()["cpu_percent"] == pytest.approx(100 * cpu / wall / 4, abs=1.5)
    assert busy.summary()["memory_bytes"] > 1e6


def test_the_beginning_can_be_left_out():
    with Utilization(interval=0.02) as busy:
        began = time.perf_counter()
        time.sleep(0.4)
        slept = time.perf_counter() - began
        spin(0.6)
    assert busy.summary(skip=slept)["cpu_percent"] > busy.summary()["cpu_percent"]
    assert busy.summary(skip=1e9) == busy.summary()  # Nothing is left: all, then.


def test_a_block_shorter_than_the_interval_is_sampled():
    with Utilization(interval=60) as busy:
        pass
    assert len(busy.samples) == 2
    assert busy.summary()["cpu_percent"] >= 0


@pytest.mark.parametrize(("shown", "names"), [
    (None, {"gpu0_percent": 10, "gpu1_percent": 20}), ("1", {"gpu0_percent": 20}), ("-1", {}), ("", {}),
    ("GPU-b,0", {"gpu0_percent": 20, "gpu1_percent": 10}), ("0,MIG-a", {"gpu0_percent": 10}),
    ("1,2,0", {"gpu0_percent": 20}), ("GPU-c,1", {}),
])
def test_the_gpus_are_those_that_tensorflow_sees(shown, names, monkeypatch):
    """Told by a driver that is not here: two GPUs, 10 and 20 percent busy, and a part that does not tell."""
    import pynvml

    known = {0: 10, 1: 20, "GPU-b": 20, "MIG-a": None}

    def handle(name):
        if name not in known:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return known[name]

    def utilization(gpu):
        if gpu is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return pynvml.c_nvmlUtilization_t(gpu=gpu)

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", handle)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", handle)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", utilization)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda gpu: types.SimpleNamespace(used=(gpu or 5) * 10**8))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    with Utilization(interval=60) as busy:
        pass
    summary = busy.summary()
    assert {name: value for name, value in summary.items() if name.endswith("_percent") and "gpu" in name} == names
    memory = [summary[f"gpu{number}_memory_bytes"] for number in range(len(names))]
    assert memory == [percent * 1e8 for percent in names.values()]
