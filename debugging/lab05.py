"""Train until the mean loss of all workers is low enough. One bug is planted.

    labs launch 2 debugging/lab05.py
"""

import os

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd

IMAGES, BATCH_SIZE, EPOCHS, TARGET = 256, 32, 20, 0.45

os.environ.update(HOROVOD_STALL_CHECK_TIME_SECONDS="5", HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="10")  # It ends what waits.
hvd.init()
tf.config.set_visible_devices([], "GPU")  # So small a network needs no GPU.
tf.keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
images = rng.normal(size=(IMAGES, 8)).astype("float32")
labels = (images.sum(axis=1) > 0).astype("float32")
mine = slice(hvd.rank(), None, hvd.size())

model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1, activation="sigmoid")])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.02 * hvd.size()))
model.compile(optimizer, "binary_crossentropy", jit_compile=False)
broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)

for epoch in range(EPOCHS):
    history = model.fit(images[mine], labels[mine], BATCH_SIZE, epochs=1, callbacks=[broadcast], verbose=0)
    loss = history.history["loss"][-1]
    print(f"rank {hvd.rank()}, epoch {epoch + 1}: loss {loss:.3f}", flush=True)
    reached = hvd.rank() == 0 and float(hvd.allreduce(loss)) < TARGET  # Rank 0 decides for all.
    if hvd.broadcast(float(reached), root_rank=0):
        break

print(f"rank {hvd.rank()} stops after {epoch + 1} epochs", flush=True)
