"""Fit a linear network to 512 images, with the same global batch on any number of workers. One bug is planted.

    labs launch 1 debugging/lab03.py
    labs launch 2 debugging/lab03.py
"""

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd

GLOBAL_BATCH_SIZE, EPOCHS = 512, 25
BASE_LR = 0.6  # Found on one worker with 512 images per step.

hvd.init()
tf.config.set_visible_devices([], "GPU")  # So small a network needs no GPU.
tf.keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
images = rng.normal(size=(512, 8)).astype("float32")
labels = images.sum(axis=1, keepdims=True)

mine = slice(hvd.rank(), None, hvd.size())
batch_size = GLOBAL_BATCH_SIZE // hvd.size()
learning_rate = BASE_LR * hvd.size()
model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1)])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(learning_rate))
model.compile(optimizer, "mse", jit_compile=False)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
model.fit(images[mine], labels[mine], batch_size, epochs=EPOCHS, callbacks=callbacks, shuffle=False, verbose=0)

loss = model.evaluate(images, labels, verbose=0)
if hvd.rank() == 0:
    print(f"workers: {hvd.size()}, global batch: {batch_size * hvd.size()}, loss after {EPOCHS} steps: {loss:.3g}")
