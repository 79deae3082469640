"""All-reduce benchmarks: those of Horovod, with raw MPI as the reference.

    algbw    bytes / seconds
    busbw    algbw x 2 (N - 1) / N, what each worker's link carries: comparable with the link for any number of workers

The factor is that of NCCL's tests (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md).
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from labs.run.errors import LabError
from labs.training import hvd_ops

Row = dict[str, Any]
Call = Callable[[], Any]
FIRST = 40
"""Calls before a measurement: until the threads of a new run have settled, calls are several times slower."""
REPEATS = 10, 50  # Least and most repeats of a case: the median of fewer is too uncertain.


def busbw_factor(size: int) -> float:
    """Return busbw / algbw of an all-reduce of `size` workers."""
    return 2 * (size - 1) / size


def message_sizes(largest: int) -> list[int]:
    """Return 4, 16, 64 ... bytes, up to the largest."""
    return [4**power for power in range(1, int(math.log(largest, 4) + 1e-9) + 1)]


def measure(backend: str, sizes: Sequence[int], seconds: float) -> list[Row]:
    """Return a row per message size and library; every worker must call it, and gets the same rows."""
    rows = []
    for nbytes in sizes:
        reduce, tensor = reduction(nbytes)
        source, target = tensor.numpy(), np.empty(len(tensor), np.float32)
        calls = {f"Horovod over {backend}": lambda: reduce(tensor),  # noqa: B023 - called at once
                 "raw MPI": lambda: mpi().Allreduce(source, target)}  # noqa: B023
        for library, times in time_in_turns(calls, seconds / len(sizes)).items():
            rows.append({"collective": "allreduce", "library": library} | _row(4 * len(tensor), times))
    return rows


def reduction(nbytes: int) -> tuple[Callable[[tf.Tensor], Any], tf.Tensor]:
    """Return Horovod's all-reduce, which waits for its result, and a tensor of about this size, the same per worker."""
    reduce = _graph()
    # On a GPU numpy() waits.
    return lambda tensor: reduce(tensor).numpy(), tf.ones(max(1, nbytes // 4 // hvd.size()) * hvd.size())


def settle() -> None:
    """Call small all-reduces until a new run has settled."""
    reduce, tensor = reduction(8)
    for _ in range(FIRST):
        reduce(tensor)


def fusion(tensors: int, nbytes: int, seconds: float) -> list[Row]:
    """Return the times of reducing many small tensors one after the other, in one step, and as one tensor.

    Horovod fuses only tensors that are ready at the same time, up to HOROVOD_FUSION_THRESHOLD.
    """
    small, large = tf.ones([tensors, nbytes // 4]), tf.ones(tensors * nbytes // 4)

    @tf.function(autograph=False)
    def in_one_step():
        # Horovod: independent all-reduces of one graph, as the gradients of a step are.
        return [hvd.allreduce(tensor, op=hvd.Sum, name=f"fused_{index}")[0]
                for index, tensor in enumerate(tf.unstack(small))]

    reduce = _graph()
    calls = {
        "one after the other": lambda: [reduce(small[index]).numpy() for index in range(tensors)],
        "in one step": lambda: in_one_step()[-1].numpy(),
        "as one tensor": lambda: reduce(large).numpy(),
    }
    return [{"how": how, "tensors": tensors} | _row(tensors * nbytes, times)
            for how, times in time_in_turns(calls, seconds).items()]


def _graph():
    """Return an all-reduce inside a tf.function, as in training; it returns one element of the result."""
    # Horovod: one operation for all sizes, under one name, as a gradient has the same name in every step.
    function = tf.function(lambda tensor: hvd.allreduce(tensor, op=hvd.Sum, name="allreduce")[-1:], autograph=False,
                           input_signature=[tf.TensorSpec([None], tf.float32)])
    function.get_concrete_function()
    return function


def mpi():
    """Return MPI's communicator of all workers; LabError if horovodrun has started them without MPI."""
    from mpi4py import MPI

    if MPI.COMM_WORLD.size != hvd.size():
        raise LabError("this measurement needs workers that mpirun has started; use `labs run`")
    return MPI.COMM_WORLD


def time_in_turns(calls: dict[Any, Call], seconds: float, bounds: tuple[int, int] = REPEATS,
                  warmup: int = 3) -> dict[Any, np.ndarray]:
    """Run the calls in turns; return the seconds of each repeat on its slowest worker. Every worker must call it.

    Args:
        calls: By name; each ends when its work is done.
        seconds: Approximate time of the measurement.
        bounds: Least and most repeats.
        warmup: Calls before them: the first one negotiates the tensor's new shape, or traces a step.
    """
    once = sum(min(_time(call) for _ in range(warmup)) for call in calls.values())
    repeats = int(np.clip(seconds / max(hvd_ops.gather_object(once)), *bounds))
    times = {name: np.empty(repeats) for name in calls}
    for repeat in range(repeats):
        first = repeat % len(calls)
        for name in [*calls][first:] + [*calls][:first]:
            times[name][repeat] = _time(calls[name])
    return {name: np.max(hvd_ops.gather_object(mine), axis=0) for name, mine in times.items()}


def _time(call: Call) -> float:
    mpi().Barrier()  # Not Horovod's: it would synchronize the workers with its cycle.
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _row(nbytes: int, times: np.ndarray) -> Row:
    seconds = float(np.median(times))
    low, high = median_interval(times)
    return {"bytes": nbytes, "seconds": seconds, "seconds_low": low, "seconds_high": high, "repeats": len(times),
            "algbw": nbytes / seconds, "busbw": nbytes / seconds * busbw_factor(hvd.size())}


def median_interval(values: np.ndarray) -> tuple[float, float]:
    """Return a 95 % confidence interval of the median from the order statistics, for any distribution of the values."""
    # The number of values below the median is binomial (n, 1/2); its normal approximation gives the two indices.
    ordered, half = np.sort(values), 1.96 * math.sqrt(len(values)) / 2
    low = max(0, math.floor(len(values) / 2 - half))
    high = min(len(values) - 1, math.ceil(len(values) / 2 + half) - 1)
    return float(ordered[low]), float(ordered[high])
