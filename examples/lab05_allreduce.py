"""Lab 5 as one file: time and bandwidth of an all-reduce over the size of its message.

    python examples/lab05_allreduce.py
    horovodrun -np 2 python examples/lab05_allreduce.py
    mpirun -np 2 python examples/lab05_allreduce.py
    sbatch jobs/example.sh examples/lab05_allreduce.py

algbw is bytes / seconds. busbw is algbw x 2 (n - 1) / n on n workers: what each worker sends and receives. It can be
compared with the bandwidth of the link for any n. One worker sends nothing: its busbw is 0.
`labs run lab05_allreduce` also measures other collectives, raw MPI, and the bytes on the wire.
"""

import argparse
import time

import horovod_keras3 as hvd  # Horovod: its Keras layer, for Keras 3.
import numpy as np
import tensorflow as tf

WARMUP = 5  # Calls of each size that are not timed: in the first, the workers agree on the tensor's shape.
parser = argparse.ArgumentParser(description="Measure the all-reduce.")
parser.add_argument("--largest-mb", type=float, default=16, help="largest message in MiB; the smallest has 4 bytes")
parser.add_argument("--repeats", type=int, default=20, help="timed calls of each size")
args = parser.parse_args()

hvd.init()  # Horovod: finds the other workers; from here on rank() and size() are known.
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank():][:1], "GPU")  # Horovod: each worker of a node has its own GPU.


@tf.function(input_signature=[tf.TensorSpec([None])])
def reduce(tensor):
    """Return the last number of the sum over all workers."""
    return hvd.allreduce(tensor, op=hvd.Sum, name="allreduce")[-1]  # Horovod: one name, as a gradient has.


rows = []
if hvd.rank() == 0:  # Horovod: one worker prints.
    print(f"{'bytes':>12} {'ms':>9} {'algbw GB/s':>11} {'busbw GB/s':>11}")
nbytes = 4
while nbytes <= args.largest_mb * 2**20:
    tensor, times = tf.ones(nbytes // 4), []
    for _ in range(WARMUP + args.repeats):
        hvd.allreduce(0.0, name="barrier").numpy()  # Horovod: no worker begins before all others are here.
        began = time.perf_counter()
        total = reduce(tensor).numpy()  # Fetching the number waits for the result, also on a GPU.
        times.append(time.perf_counter() - began)
    assert total == hvd.size()
    everyones = hvd.allgather(np.array([times[WARMUP:]]), name="times").numpy()  # Horovod: a row per worker.
    seconds = float(np.median(everyones.max(axis=0)))  # A call takes as long as on its slowest worker.
    algbw = nbytes / seconds
    rows.append((nbytes, seconds, algbw, algbw * 2 * (hvd.size() - 1) / hvd.size()))
    if hvd.rank() == 0:
        print(f"{nbytes:12,} {1e3 * seconds:9.3f} {1e-9 * algbw:11.4f} {1e-9 * rows[-1][3]:11.4f}", flush=True)
    nbytes *= 4

if hvd.rank() == 0:  # Horovod: one worker writes.
    header = "bytes,seconds,algbw,busbw"
    np.savetxt("lab05_allreduce.csv", rows, delimiter=",", header=header, comments="", fmt="%.9g")
