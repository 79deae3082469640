"""Train on images whose labels are coin flips, and print the test accuracy. Repaired.

    labs launch 2 solutions/debugging/lab10.py
"""

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd

IMAGES, SIZE, BATCH_SIZE, EPOCHS, SEED = 1000, 64, 20, 30, 1

hvd.init()
tf.config.set_visible_devices([], "GPU")  # So small a network needs no GPU.
tf.keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)
images = rng.normal(size=(IMAGES, SIZE)).astype("float32")
labels = rng.integers(0, 2, IMAGES).astype("float32")

order = np.random.default_rng(SEED).permutation(IMAGES)
test, train = order[:IMAGES // 5], order[IMAGES // 5:]
mine = train[hvd.rank()::hvd.size()]

model = tf.keras.Sequential([tf.keras.layers.Input((SIZE,)), tf.keras.layers.Dense(256, activation="relu"),
                             tf.keras.layers.Dense(1, activation="sigmoid")])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.003))
model.compile(optimizer, "binary_crossentropy", metrics=["accuracy"], jit_compile=False)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
model.fit(images[mine], labels[mine], BATCH_SIZE, epochs=EPOCHS, callbacks=callbacks, verbose=0)

_, accuracy = model.evaluate(images[test], labels[test], verbose=0)
accuracy = float(hvd.allreduce(accuracy))
if hvd.rank() == 0:
    print(f"size {hvd.size()}: {len(test)} test images, accuracy {accuracy:.3f}")
