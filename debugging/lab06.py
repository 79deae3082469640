"""Train a denoiser with 64 images per step of all workers together, and print its memory. One bug is planted.

    labs launch 1 debugging/lab06.py
    labs launch 2 debugging/lab06.py
"""

import resource

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd

IMAGES, SIDE, GLOBAL_BATCH_SIZE, LEARNING_RATE = 128, 64, 64, 0.003

hvd.init()
tf.config.set_visible_devices([], "GPU")  # The memory below is the computer's own.
tf.keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
clean = rng.random((IMAGES, SIDE, SIDE, 3), "float32")
noisy = clean + rng.normal(0, 0.1, clean.shape).astype("float32")

mine = slice(hvd.rank(), None, hvd.size())
batch_size = GLOBAL_BATCH_SIZE
layers = [tf.keras.layers.Conv2D(16, 3, padding="same", activation="relu") for _ in range(6)]
layers.append(tf.keras.layers.Conv2D(3, 3, padding="same"))
model = tf.keras.Sequential([tf.keras.layers.Input((SIDE, SIDE, 3)), *layers])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(LEARNING_RATE))
model.compile(optimizer, "mse", jit_compile=False)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model.fit(noisy[mine], clean[mine], batch_size, epochs=1, callbacks=callbacks, shuffle=False, verbose=0)

added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
most = np.max(hvd.allgather([added]))
if hvd.rank() == 0:
    print(f"workers: {hvd.size()}, peak memory of a worker: training added {most:.0f} MiB")
