"""Train for three epochs, and print how many images each has used. Repaired.

    labs launch 2 solutions/debugging/lab11.py
"""

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd

IMAGES, BATCH_SIZE, EPOCHS, SEED = 1024, 32, 3, 1

hvd.init()
tf.config.set_visible_devices([], "GPU")  # So small a network needs no GPU.
tf.keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)
images = rng.normal(size=(IMAGES, 8)).astype("float32")
labels = (images.sum(axis=1) > 0).astype("float32")
nodes = hvd.size() // hvd.local_size()

learning_rate = 0.01 * hvd.size()
model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1, activation="sigmoid")])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(learning_rate))
model.compile(optimizer, "binary_crossentropy", jit_compile=False)
broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)

for epoch in range(EPOCHS):
    order = np.random.default_rng([SEED, epoch]).permutation(IMAGES)
    mine = order[hvd.rank()::hvd.size()]
    model.fit(images[mine], labels[mine], BATCH_SIZE, epochs=1, callbacks=[broadcast], shuffle=False, verbose=0)
    used = np.asarray(hvd.allgather(mine))
    if hvd.rank() == 0:
        print(f"{hvd.size()} workers on {nodes} node{'s' * (nodes > 1)}, epoch {epoch + 1}: "
              f"{len(used)} images trained, {len(np.unique(used))} different ones")
