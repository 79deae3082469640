"""One worker of a two-node job: adds up over all workers and says where it ran."""

import os

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
total = float(hvd.allreduce(tf.constant(hvd.rank() + 1.0), op=hvd.Sum))
print(
    f"{os.environ['SLURMD_NODENAME']}: rank {hvd.rank()} of {hvd.size()}, local_size {hvd.local_size()}, "
    f"cross_size {hvd.cross_size()}, sum {total}",
    flush=True,
)
