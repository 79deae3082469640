"""Ten all-reduces of 1 MiB over the backend that the command line names; rank 0 prints who carried them and where."""

import dataclasses
import sys

import horovod.tensorflow as hvd
import psutil
import tensorflow as tf

from labs.run.fields import Backend
from labs.training import workers

MEBIBYTE, TIMES = 2**20, 10


@dataclasses.dataclass(frozen=True)
class Config:
    backend: Backend


def on_the_wire() -> int:
    hvd.allreduce(tf.zeros(1), name="barrier")
    return psutil.net_io_counters(pernic=True)["lo"].bytes_sent


layout = workers.init(seed=1, environment=workers.horovod_environment(Config(sys.argv[1])))
ones = tf.ones(MEBIBYTE // 4)
total = hvd.allreduce(ones, op=hvd.Sum, name="ones")
before = on_the_wire()
for _ in range(TIMES):
    total = hvd.allreduce(ones, op=hvd.Sum, name="ones")
sent = (on_the_wire() - before) / TIMES
assert float(total[0]) == layout.size
print(f"rank {layout.rank}: local {layout.local_rank} of {layout.local_size}, {layout.backend}, "
      f"{sent / MEBIBYTE:.3f} buffers per all-reduce on lo")
