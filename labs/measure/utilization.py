"""Utilization of CPU cores, GPUs and memory, sampled while a block runs."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psutil


class Utilization:
    """Samples this process's cores and this process's GPUs while the `with` block runs.

        with Utilization() as busy:
            train()
        busy.summary()["cpu_percent"]

    Args:
        interval: Seconds between two samples.
    """

    def __init__(self, interval: float = 0.2):
        self.interval = interval
        self.samples: list[dict[str, float]] = []
        """One row per sample: seconds since the start, cpu_seconds, memory_bytes, gpu0_percent and so on."""
        self._ended = threading.Event()

    def __enter__(self) -> Utilization:
        self._process, self._gpus, self._began = psutil.Process(), _gpus(), time.perf_counter()
        self._cores = len(os.sched_getaffinity(0))
        self._sample()
        self._thread = threading.Thread(target=self._follow, name="labs-utilization", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        self._thread.join()
        self._sample()

    def _follow(self) -> None:
        while not self._ended.wait(self.interval):
            self._sample()

    def _sample(self) -> None:
        spent = self._process.cpu_times()
        row = {"seconds": time.perf_counter() - self._began, "cpu_seconds": spent.user + spent.system}
        row["memory_bytes"] = self._process.memory_info().rss
        percents = {f"gpu{number}_percent": _gpu_percent(gpu) for number, gpu in enumerate(self._gpus)}
        self.samples.append(row | {name: value for name, value in percents.items() if value is not None})

    def summary(self, skip: float = 0.0) -> dict[str, Any]:
        """Return the mean percentages and the largest memory, in bytes.

        `cpu_percent` is the busy share of all cores that this process may use: at 100 all are busy.
        `gpu0_percent` is the driver's figure: the share of the time in which at least one kernel ran, however small.

        Args:
            skip: Seconds at the start to leave out, such as the first epoch, which traces the model.
        """
        rows = [row for row in self.samples if row["seconds"] >= skip]
        rows = rows if len(rows) > 1 else self.samples
        seconds, cpu_seconds = (rows[-1][name] - rows[0][name] for name in ("seconds", "cpu_seconds"))
        gpus = sorted({name for row in rows for name in row if name.startswith("gpu")})
        return {
            "cpu_percent": 100 * cpu_seconds / seconds / self._cores,
            "memory_bytes": max(row["memory_bytes"] for row in rows),
            **{gpu: statistics.fmean(row[gpu] for row in rows if gpu in row) for gpu in gpus},
        }


def combine(summaries: Sequence[Mapping[str, float]], nodes: int) -> dict[str, float]:
    """Return the utilization of a run from the summaries of its workers.

    `cpu_percent` and `gpu_percent` are means over the workers and over their GPUs; `memory_bytes` is the sum over the
    workers of one node.

    Args:
        summaries: From `Utilization.summary`, one per worker.
        nodes: Number of nodes of the run.
    """
    gpus = [value for each in summaries for name, value in each.items() if name.startswith("gpu")]
    return {
        "cpu_percent": statistics.fmean(each["cpu_percent"] for each in summaries),
        "memory_bytes": sum(each["memory_bytes"] for each in summaries) / nodes,
        **({"gpu_percent": statistics.fmean(gpus)} if gpus else {}),
    }


def _gpus() -> list:
    """Return NVML's handles of this process's GPUs, in TensorFlow's order; an empty list without a driver."""
    import pynvml

    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        pynvml.nvmlInit()
        names = range(pynvml.nvmlDeviceGetCount()) if shown is None else filter(None, shown.split(","))
        return [pynvml.nvmlDeviceGetHandleByIndex(int(name)) if str(name).isdecimal() else
                pynvml.nvmlDeviceGetHandleByUUID(name) for name in names]
    except (pynvml.NVMLError, ValueError):
        return []


def _gpu_percent(gpu) -> float | None:
    """Return a GPU's utilization in percent; None if it is not reported, as for a MIG instance."""
    import pynvml

    try:
        return float(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu)
    except pynvml.NVMLError:
        return None
