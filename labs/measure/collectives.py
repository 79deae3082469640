"""Collective benchmarks: all-reduce, broadcast and all-gather of Horovod, with raw MPI as the reference.

    algbw    bytes / seconds
    busbw    algbw x what each worker's link carries per byte: comparable with the link for any number of workers

The factors are those of NCCL's tests (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md). `bytes` is the size of the
reduced or broadcast tensor, and of an all-gather the size of the result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from labs.training import hvd_ops

Row = dict[str, Any]
Call = Callable[[], Any]
COLLECTIVES = ("allreduce", "broadcast", "allgather")
EAGER_BYTES = 4096
"""Up to this size, eager calls are measured too; in larger ones their overhead does not show."""
WARMUP = 3
"""Calls of each case before it is timed: the first one negotiates the tensor's new shape, which is slow."""
FIRST = 40
"""Calls at the start of a run that are reported separately: until its threads have settled, calls are several times
slower."""
REPEATS = 10, 50
"""Least and most repeats of a case: the median of fewer is too uncertain."""
Times = dict[Any, np.ndarray]
"""The seconds of each repeat on its slowest worker, by the name of the call."""


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
        elements = max(1, nbytes // 4 // hvd.size()) * hvd.size()
        calls = _calls(backend, collective, elements, graphs[collective])
        for library, times in in_turns(calls, seconds / len(cases)).items():
            rows.append({"collective": collective, "library": library} | _row(collective, 4 * elements, times))
    return rows


def reduction(nbytes: int) -> tuple[Callable[[tf.Tensor], Any], tf.Tensor]:
    """Return Horovod's all-reduce, which waits for its result, and a tensor of about this size."""
    reduce = _graph("allreduce")
    return lambda tensor: reduce(tensor).numpy(), tf.ones(max(1, nbytes // 4 // hvd.size()) * hvd.size())


def settle(backend: str, nbytes: int = 8) -> list[Row]:
    """Call all-reduces of `nbytes` until a new run has settled, and return their times, a row per library.

    `first_seconds` is the first call, `next_seconds` the median of the next nine, `later_seconds` that of all others.
    Over Gloo the first calls take 8 to 50 ms, later ones 2 ms.
    """
    elements = max(1, nbytes // 4 // hvd.size()) * hvd.size()
    calls = _calls(backend, "allreduce", elements, _graph("allreduce"))
    return [{"library": library, "bytes": 4 * elements, "calls": FIRST, "first_seconds": float(times[0]),
             "next_seconds": float(np.median(times[1:10])), "later_seconds": float(np.median(times[10:]))}
            for library, times in _repeated(calls, FIRST).items()]


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
            for how, times in in_turns(calls, seconds).items()]


def _calls(backend: str, collective: str, elements: int, graph) -> dict[str, Call]:
    """Return the calls that are measured in turns, by library."""
    mine = elements // hvd.size() if collective == "allgather" else elements
    tensor = tf.ones(mine)
    name = f"Horovod over {backend}"
    calls: dict[str, Call] = {name: lambda: graph(tensor).numpy()}  # On a GPU the call returns before its end.
    if collective == "allreduce" and 4 * elements <= EAGER_BYTES:
        # Horovod: the same as an eager call, for which TensorFlow looks the operation up each time.
        calls[f"{name}, eager"] = lambda: hvd.allreduce(tensor, op=hvd.Sum, name="eager").numpy()
    return calls | _raw_mpi(collective, mine, elements)


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


def _raw_mpi(collective: str, mine: int, elements: int) -> dict[str, Call]:
    """Return the same collective of MPI on host memory; an empty dictionary if mpirun did not start the workers."""
    world = mpi()
    if world is None:
        return {}
    source, target = np.full(mine, 1 + world.rank, np.float32), np.zeros(elements, np.float32)
    calls = {
        "allreduce": lambda: (world.Allreduce(source, target), target)[1],
        "broadcast": lambda: (world.Bcast(source), source)[1],
        "allgather": lambda: (world.Allgather(source, target), target)[1],
    }
    return {"raw MPI": calls[collective]}


def mpi():
    """Return MPI's communicator of all workers, or None if they were not started by mpirun."""
    from mpi4py import MPI

    return MPI.COMM_WORLD if hvd.size() == MPI.COMM_WORLD.size else None


def in_turns(calls: dict[Any, Call], seconds: float, bounds: tuple[int, int] = REPEATS, warmup: int = WARMUP) -> Times:
    """Run the calls in turns, for about some seconds; every worker must call it.

    Args:
        calls: By name; each ends when its work is done.
        seconds: Approximate time of the measurement.
        bounds: Least and most repeats.
        warmup: Calls before them, which are not reported.
    """
    once = sum(min(_time(call) for _ in range(warmup)) for call in calls.values())
    return _repeated(calls, int(np.clip(seconds / max(hvd_ops.gather_object(once)), *bounds)))


def _repeated(calls: dict[Any, Call], repeats: int) -> Times:
    """Run each call `repeats` times, in turns."""
    times = {name: np.empty(repeats) for name in calls}
    for repeat in range(repeats):
        first = repeat % len(calls)
        for name in [*calls][first:] + [*calls][:first]:
            times[name][repeat] = _time(calls[name])
    return {name: np.max(hvd_ops.gather_object(mine), axis=0) for name, mine in times.items()}


def _time(call: Call) -> float:
    barrier()
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def barrier() -> None:
    """Wait until every worker has called this function, by MPI's barrier where there is one.

    Horovod's own barrier would synchronize the workers with its cycle, and send bytes that are not to be counted.
    """
    world = mpi()
    if world is None:
        hvd_ops.barrier()
    else:
        world.Barrier()


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
