"""Collective benchmarks: all-reduce, broadcast and all-gather of Horovod, with raw MPI as the reference.

    algbw    bytes / seconds
    busbw    algbw x what each worker's link carries per byte: comparable with the link for any number of workers

The factors are those of NCCL's tests (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md). `bytes` is the size of the
reduced or broadcast tensor, and of an all-gather the size of the result.
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
COLLECTIVES = ("allreduce", "broadcast", "allgather")
FIRST = 40
"""Calls before a measurement: until the threads of a new run have settled, calls are several times slower."""
REPEATS = 10, 50
"""Least and most repeats of a case: the median of fewer is too uncertain."""


def busbw_factor(collective: str, size: int) -> float:
    """Return busbw / algbw of a collective with `size` workers."""
    return {"allreduce": 2 * (size - 1) / size, "broadcast": 1.0, "allgather": (size - 1) / size}[collective]


def message_sizes(largest: int) -> list[int]:
    """Return 4, 16, 64 ... bytes, up to the largest."""
    return [4**power for power in range(1, int(math.log(largest, 4) + 1e-9) + 1)]


def measure(backend: str, sizes: Sequence[int], seconds: float,
            collectives: Sequence[str] = COLLECTIVES) -> list[Row]:
    """Return a row per collective, message size and library; every worker must call it, and gets the same rows."""
    cases = [(collective, nbytes) for collective in collectives for nbytes in sizes]
    graphs = {collective: _graph(collective) for collective in collectives}
    rows = []
    for collective, nbytes in cases:
        elements = _elements(nbytes)
        mine = elements // hvd.size() if collective == "allgather" else elements
        graph, tensor = graphs[collective], tf.ones(mine)
        calls = {f"Horovod over {backend}": lambda: graph(tensor).numpy(),  # noqa: B023 - On a GPU numpy() waits.
                 "raw MPI": _raw_mpi(collective, mine, elements)}
        for library, times in time_in_turns(calls, seconds / len(cases)).items():
            rows.append({"collective": collective, "library": library} | _row(collective, 4 * elements, times))
    return rows


def _elements(nbytes: int) -> int:
    """Return the elements of a message of about this size, which can be divided among the workers."""
    return max(1, nbytes // 4 // hvd.size()) * hvd.size()


def reduction(nbytes: int) -> tuple[Callable[[tf.Tensor], Any], tf.Tensor]:
    """Return Horovod's all-reduce, which waits for its result, and a tensor of about this size."""
    reduce = _graph("allreduce")
    return lambda tensor: reduce(tensor).numpy(), tf.ones(_elements(nbytes))


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

    reduce = _graph("allreduce")
    calls = {
        "one after the other": lambda: [reduce(small[index]).numpy() for index in range(tensors)],
        "in one step": lambda: in_one_step()[-1].numpy(),
        "as one tensor": lambda: reduce(large).numpy(),
    }
    return [{"how": how, "tensors": tensors} | _row("allreduce", tensors * nbytes, times)
            for how, times in time_in_turns(calls, seconds).items()]


def _graph(collective: str):
    """Return a collective inside a tf.function, as in training; it returns one element of the result."""
    # Horovod: one operation for all sizes, under one name, as a gradient has the same name in every step.
    operation = {
        "allreduce": lambda tensor: hvd.allreduce(tensor, op=hvd.Sum, name="allreduce"),
        "broadcast": lambda tensor: hvd.broadcast(tensor, root_rank=0, name="broadcast"),
        "allgather": lambda tensor: hvd.allgather(tensor, name="allgather"),
    }[collective]
    function = tf.function(lambda tensor: operation(tensor)[-1:], autograph=False,
                           input_signature=[tf.TensorSpec([None], tf.float32)])
    function.get_concrete_function()
    return function


def _raw_mpi(collective: str, mine: int, elements: int) -> Call:
    """Return the same collective of MPI on host memory."""
    world = mpi()
    source, target = np.full(mine, 1 + world.rank, np.float32), np.zeros(elements, np.float32)
    return {
        "allreduce": lambda: (world.Allreduce(source, target), target)[1],
        "broadcast": lambda: (world.Bcast(source), source)[1],
        "allgather": lambda: (world.Allgather(source, target), target)[1],
    }[collective]


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


def _row(collective: str, nbytes: int, times: np.ndarray) -> Row:
    seconds = float(np.median(times))
    low, high = median_interval(times)
    algbw = nbytes / seconds
    return {"bytes": nbytes, "seconds": seconds, "seconds_low": low, "seconds_high": high, "repeats": len(times),
            "algbw": algbw, "busbw": algbw * busbw_factor(collective, hvd.size())}


def median_interval(values: np.ndarray) -> tuple[float, float]:
    """Return a 95 % confidence interval of the median from the order statistics, for any distribution of the values.

    The number of values below the median is binomial (n, 1/2); its normal approximation gives the two indices.
    """
    ordered, half = np.sort(values), 1.96 * math.sqrt(len(values)) / 2
    low = max(0, math.floor(len(values) / 2 - half))
    high = min(len(values) - 1, math.ceil(len(values) / 2 + half) - 1)
    return float(ordered[low]), float(ordered[high])
