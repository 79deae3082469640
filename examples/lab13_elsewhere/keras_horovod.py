"""Ten steps in Keras and Horovod: every process runs this script, and each is one worker.

    horovodrun -np 2 python examples/lab13_elsewhere/keras_horovod.py FOLDER

Reads FOLDER/start.npz and writes FOLDER/horovod.npz; `labs run lab13_elsewhere --study frameworks` makes both.
"""

import sys

import horovod
import horovod_keras3 as hvd
import numpy as np
import tensorflow as tf

folder, start = sys.argv[1], np.load(f"{sys.argv[1]}/start.npz")
batch_size, base_lr, momentum = int(start["batch_size"]), float(start["base_lr"]), float(start["momentum"])

hvd.init()  # Horovod: finds the other workers.
tf.config.set_visible_devices([], "GPU")  # All three programs compute on the processor.
layers = tf.keras.layers
model = tf.keras.Sequential([
    layers.Input((28, 28, 1)),
    layers.Conv2D(16, 3, strides=2, activation="relu"),
    layers.Conv2D(32, 3, strides=2, activation="relu"),
    layers.Flatten(),
    layers.Dense(10, activation="softmax"),
])
model.set_weights([start[f"weight{number}"] for number in range(6)])
# Horovod: averages the gradients of all workers in each step.
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(base_lr, momentum))
model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
mine = slice(hvd.rank(), None, hvd.size())  # Horovod: does not shard the data; each worker takes every size-th image.
model.fit(start["images"][mine], start["labels"][mine], batch_size, epochs=1, shuffle=False, verbose=0,
          callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])  # Horovod: equal weights at the start.
if hvd.rank() == 0:  # Horovod: one worker writes.
    np.savez(f"{folder}/horovod.npz", *model.get_weights(), workers=hvd.size(),
             version=f"Keras {tf.keras.__version__}, Horovod {horovod.__version__}")
