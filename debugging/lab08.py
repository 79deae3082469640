"""Train some steps of one global batch on one or more workers and print the throughput. One bug is planted.

    labs launch 2 debugging/lab08.py
"""

import os
import time

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd

GLOBAL_BATCH, STEPS = 64, 20

hvd.init()
threads = os.cpu_count()
tf.config.threading.set_intra_op_parallelism_threads(threads)
tf.config.set_visible_devices([], "GPU")  # So small a network needs no GPU.
tf.keras.utils.set_random_seed(1)
batch = GLOBAL_BATCH // hvd.size()
rng = np.random.default_rng(hvd.rank())
images = rng.normal(size=(STEPS * batch, 32, 32, 3)).astype("float32")
ages = rng.uniform(15, 85, STEPS * batch).astype("float32")

network = [tf.keras.layers.Conv2D(32, 3, activation="relu"), tf.keras.layers.GlobalAveragePooling2D()]
model = tf.keras.Sequential([tf.keras.layers.Input((32, 32, 3)), *network, tf.keras.layers.Dense(1)])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.001))
model.compile(optimizer, "mse", jit_compile=False)
broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)

model.fit(images, ages, batch, callbacks=[broadcast], verbose=0)  # The first epoch is not timed.
began = time.perf_counter()
model.fit(images, ages, batch, shuffle=False, verbose=0)
seconds = float(np.max(hvd.allgather(np.array([time.perf_counter() - began]))))
images_per_sec = STEPS * batch * hvd.size() / seconds
started = int(np.sum(hvd.allgather(np.array([threads]))))
if hvd.rank() == 0:
    print(f"{hvd.size()} workers, {images_per_sec:.0f} images/s; threads: {started}, cores: {os.cpu_count()}")
