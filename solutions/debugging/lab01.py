"""Train three epochs and log the images and seconds of each. Repaired.

    labs launch 2 solutions/debugging/lab01.py
"""

import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd

IMAGES, BATCH_SIZE, EPOCHS = 256, 32, 3

hvd.init()
tf.config.set_visible_devices([], "GPU")  # So small a network needs no GPU.
tf.keras.utils.set_random_seed(1)
log = Path(sys.argv[1] if len(sys.argv) > 1 else "throughput.csv")
rng = np.random.default_rng(1)
images = rng.normal(size=(IMAGES, 8)).astype("float32")
labels = (images.sum(axis=1) > 0).astype("float32")
mine = slice(hvd.rank(), None, hvd.size())

model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1, activation="sigmoid")])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01 * hvd.size()))
model.compile(optimizer, "binary_crossentropy", jit_compile=False)
broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
if hvd.rank() == 0:
    log.write_text("epoch,images,seconds\n")

for epoch in range(EPOCHS):
    began = time.perf_counter()
    model.fit(images[mine], labels[mine], BATCH_SIZE, epochs=1, callbacks=[broadcast], verbose=0)
    if hvd.rank() == 0:  # Every worker runs this line; one row for each epoch is wanted.
        with log.open("a") as file:
            file.write(f"{epoch + 1},{IMAGES},{time.perf_counter() - began:.2f}\n")

hvd.allreduce(0.0)  # A barrier: every worker has logged its last epoch.
if hvd.rank() == 0:
    rows = [line.split(",") for line in log.read_text().splitlines()[1:]]
    print(f"{len(rows)} rows for {EPOCHS} epochs: {sum(int(row[1]) for row in rows)} images in all")
