"""How busy the cores and the GPUs are while something runs."""

from __future__ import annotations

import statistics
import threading

import psutil


class Utilization:
    """Samples this process's cores and this node's GPUs while the `with` block runs.

        with Utilization() as busy:
            train()
        busy.summary()["cpu_percent"]

    Args:
        interval: Seconds between two samples.
    """

    def __init__(self, interval: float = 0.2):
        self.interval = interval
        self.samples: dict[str, list[float]] = {}
        self._ended = threading.Event()

    def __enter__(self) -> Utilization:
        self._process = psutil.Process()
        self._process.cpu_percent()  # The first call only sets the start.
        self._gpus = _gpus()
        self._thread = threading.Thread(target=self._sample, name="labs-utilization", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        cores = psutil.cpu_count() or 1
        while not self._ended.wait(self.interval):
            self._note("cpu_percent", self._process.cpu_percent() / cores)
            self._note("memory_bytes", self._process.memory_info().rss)
            for number, gpu in enumerate(self._gpus):
                self._note(f"gpu{number}_percent", _gpu_percent(gpu))

    def _note(self, name: str, value: float) -> None:
        self.samples.setdefault(name, []).append(value)

    def summary(self) -> dict[str, float]:
        """Return the mean of each percentage (of all cores; of a GPU) and the largest memory in bytes."""
        return {name: max(values) if name.endswith("bytes") else statistics.fmean(values)
                for name, values in self.samples.items()}


def _gpus() -> list:
    """Return NVML's handles of the GPUs of this node; none where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []


def _gpu_percent(gpu) -> float:
    import pynvml

    return float(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu)
