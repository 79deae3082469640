"""The calls that are timed do what they are called, on all workers; rank 0 says so."""

import time

import tensorflow as tf

from labs.measure import collectives, wire
from labs.training import workers

layout = workers.init(seed=1)
rank, size = layout.rank, layout.size

mine = tf.fill([3], float(rank + 1))
assert float(collectives._graph("allreduce")(mine)[0]) == sum(range(1, size + 1))
assert float(collectives._graph("broadcast")(mine)[0]) == 1
assert float(collectives._graph("allgather")(mine)[0]) == size

def by_mpi(collective: str, mine: int) -> list[float]:
    return collectives._raw_mpi(collective, mine, 4)["raw MPI"]().tolist()


assert by_mpi("allreduce", 4) == [sum(range(1, size + 1))] * 4
assert by_mpi("broadcast", 4) == [1] * 4
assert by_mpi("allgather", 4 // size) == [1 + index * size // 4 for index in range(4)]

times = collectives._in_turns({"slow": lambda: time.sleep(0.02 * rank), "quick": lambda: None}, 0.1)
assert min(times["slow"]) >= 0.02 * (size - 1), "the slowest worker counts, on every worker"

held = tf.Variable([[1.0, 2.0, 3.0 + rank]])
assert wire.largest_difference([tf.Variable([5.0]), held]) == size - 1
assert wire.largest_difference([tf.Variable([5.0])]) == 0
print(f"rank {rank}: {sorted(times)}, all well")
