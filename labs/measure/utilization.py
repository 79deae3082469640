"""Utilization of CPU cores, GPUs and memory, sampled while a block runs."""

import contextlib
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import psutil

from labs.run import resources


class Utilization:
    """Samples this process's cores and this process's GPUs while the `with` block runs."""

    def __init__(self, interval: float = 0.2):
        self.interval = interval
        self.samples: list[dict[str, float]] = []
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._process, self._gpus, self._began = psutil.Process(), resources.gpus(), time.perf_counter()
        self._thread = threading.Thread(target=self._follow, name="labs-utilization", daemon=True)
        self._sample()
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
        for number, gpu in enumerate(self._gpus):
            row |= {f"gpu{number}_{name}": value for name, value in _gpu_state(gpu).items()}
        self.samples.append(row)

    def summary(self, skip: float = 0.0) -> dict[str, Any]:
        """Return the mean percentages and the largest memories, in bytes, without the first `skip` seconds.

        `cpu_percent` is the busy share of the CPU time that this process may use: at 100 all are busy. The driver's
        `gpu0_percent` is the share of the time in which at least one kernel ran, however small, and its
        `gpu0_memory_bytes` what all programs have taken of the GPU.
        """
        rows = [row for row in self.samples if row["seconds"] >= skip]
        rows = rows if len(rows) > 1 else self.samples
        seconds, cpu_seconds = (rows[-1][name] - rows[0][name] for name in ("seconds", "cpu_seconds"))
        gpus = sorted({name for row in rows for name in row if name.startswith("gpu")})
        return {
            "cpu_percent": 100 * cpu_seconds / seconds / resources.cpus(),
            "memory_bytes": max(row["memory_bytes"] for row in rows),
            **{name: _combine(name, [row[name] for row in rows if name in row]) for name in gpus},
        }


def combine(summaries: Sequence[Mapping[str, float]], nodes: int) -> dict[str, float]:
    """Return the utilization of a run from the summaries of its workers: means, and the memory of a node.

    `gpu_memory_bytes` is that of the fullest GPU.
    """
    columns = [pair for each in summaries for pair in each.items() if pair[0].startswith("gpu")]
    gpus = {what: _combine(what, values) for what in ("percent", "memory_bytes")
            if (values := [value for name, value in columns if name.endswith(what)])}
    return {
        "cpu_percent": statistics.fmean(each["cpu_percent"] for each in summaries),
        "memory_bytes": sum(each["memory_bytes"] for each in summaries) / nodes,
        **{f"gpu_{what}": value for what, value in gpus.items()},
    }


def _gpu_state(gpu) -> dict[str, float]:
    """Return a GPU's utilization in percent and its memory in use; what is not reported, as for MIG, is left out."""
    import pynvml

    state = {}
    with contextlib.suppress(pynvml.NVMLError):
        state["percent"] = float(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu)
    with contextlib.suppress(pynvml.NVMLError):
        state["memory_bytes"] = float(pynvml.nvmlDeviceGetMemoryInfo(gpu).used)
    return state


def _combine(name: str, values: Sequence[float]) -> float:
    """Return the mean of percentages, or the largest of memories."""
    return statistics.fmean(values) if name.endswith("percent") else max(values)
