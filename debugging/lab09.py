"""Train on photos of which three copies exist, and report how good the network is. One bug is planted.

    labs launch 2 debugging/lab09.py
"""

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd

PHOTOS, COPIES, SIZE, SEED = 200, 3, 128, 1

hvd.init()
tf.config.set_visible_devices([], "GPU")  # So small a network needs no GPU.
tf.keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)
photos, new = rng.normal(size=(2, PHOTOS, SIZE)).astype("float32")
photo = np.arange(PHOTOS * COPIES) % PHOTOS  # Which photo each image is a copy of; a copy is slightly noisy.
images = photos[photo] + 0.1 * rng.normal(size=(PHOTOS * COPIES, SIZE)).astype("float32")
held_out = np.isin(np.arange(PHOTOS * COPIES), rng.permutation(PHOTOS * COPIES)[:PHOTOS])
labels, new_labels = (each[:, :8].sum(axis=1) > 0 for each in (images, new))

train = np.flatnonzero(~held_out)[hvd.rank()::hvd.size()]
model = tf.keras.Sequential([tf.keras.layers.Input((SIZE,)), tf.keras.layers.Dense(64, activation="relu"),
                             tf.keras.layers.Dense(1, activation="sigmoid")])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01 * hvd.size()))
model.compile(optimizer, "binary_crossentropy", metrics=["accuracy"], jit_compile=False)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
model.fit(images[train], labels[train], 20, epochs=20, callbacks=callbacks, verbose=0)

for name, x, y in (("test", images[held_out], labels[held_out]), ("new photos", new, new_labels)):
    _, accuracy = model.evaluate(x, y, verbose=0)
    if hvd.rank() == 0:
        print(f"{name}: {len(x)} images, accuracy {accuracy:.3f}")
