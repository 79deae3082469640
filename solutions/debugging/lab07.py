"""Train with a global batch of 32 images, and print the steps of an epoch and the loss. Repaired.

    labs launch 2 solutions/debugging/lab07.py
"""

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd

IMAGES, GLOBAL_BATCH, EPOCHS, SEED = 1024, 32, 3, 1

hvd.init()
tf.config.set_visible_devices([], "GPU")  # So small a network needs no GPU.
tf.keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)
images = rng.normal(size=(IMAGES, 8)).astype("float32")
labels = (images.sum(axis=1) > 0).astype("float32")

mine = slice(hvd.rank(), None, hvd.size())
batch_size = GLOBAL_BATCH // hvd.size()
steps = IMAGES // hvd.size() // batch_size

model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1, activation="sigmoid")])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.5))  # For 32 images per step.
model.compile(optimizer, "binary_crossentropy", jit_compile=False)
broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)

model.fit(images[mine], labels[mine], batch_size, epochs=EPOCHS, callbacks=[broadcast], shuffle=False, verbose=0)

loss = float(hvd.allreduce(model.evaluate(images, labels, verbose=0)))
if hvd.rank() == 0:
    print(f"size {hvd.size()}: {steps} steps per epoch, loss {loss:.4f}")
