"""Train two epochs on several workers and compare their weights. One bug is planted.

    labs launch 2 debugging/lab02.py
"""

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd

IMAGES, BATCH_SIZE, EPOCHS = 256, 32, 2

hvd.init()
tf.config.set_visible_devices([], "GPU")  # So small a network needs no GPU.
rng = np.random.default_rng(1)
images = rng.normal(size=(IMAGES, 8)).astype("float32")
labels = (images.sum(axis=1) > 0).astype("float32")

tf.keras.utils.set_random_seed(100 + hvd.rank())  # Dropout must leave out other units on each worker.
mine = slice(hvd.rank(), None, hvd.size())
layers = tf.keras.layers
model = tf.keras.Sequential([
    layers.Input((8,)), layers.Dense(16, activation="relu"), layers.Dropout(0.2), layers.Dense(1, activation="sigmoid"),
])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01 * hvd.size()))
model.compile(optimizer, "binary_crossentropy", jit_compile=False)
callbacks = []
model.fit(images[mine], labels[mine], BATCH_SIZE, epochs=EPOCHS, callbacks=callbacks, verbose=0)

weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
all_weights = np.asarray(hvd.allgather(weights[None]))  # One row for each worker.
loss = model.evaluate(images, labels, verbose=0)
print(f"rank {hvd.rank()}: loss {loss:.4f}")
if hvd.rank() == 0:
    print(f"largest difference between the workers' weights: {np.ptp(all_weights, axis=0).max():.6f}")
