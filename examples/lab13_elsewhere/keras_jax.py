"""The same ten steps in Keras on JAX with keras.distribution: one process that holds all devices.

    XLA_FLAGS=--xla_force_host_platform_device_count=2 python examples/lab13_elsewhere/keras_jax.py FOLDER

XLA_FLAGS cuts the processor into two simulated devices. Reads FOLDER/start.npz and writes FOLDER/jax.npz. Needs jax and
keras (`pip install jax keras`), and neither TensorFlow nor Horovod.
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "jax"
import jax
import keras
import numpy as np

folder, start = sys.argv[1], np.load(f"{sys.argv[1]}/start.npz")
batch_size, base_lr, momentum = int(start["batch_size"]), float(start["base_lr"]), float(start["momentum"])

devices = keras.distribution.list_devices()
keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False))
layers = keras.layers
model = keras.Sequential([
    layers.Input((28, 28, 1)),
    layers.Conv2D(16, 3, strides=2, activation="relu"),
    layers.Conv2D(32, 3, strides=2, activation="relu"),
    layers.Flatten(),
    layers.Dense(10, activation="softmax"),
])
model.set_weights([start[f"weight{number}"] for number in range(6)])
model.compile(keras.optimizers.SGD(base_lr, momentum), "sparse_categorical_crossentropy")
# One program sees the global batch; JAX divides it among the devices and adds the all-reduce where one is needed.
model.fit(start["images"], start["labels"], batch_size * len(devices), epochs=1, shuffle=False, verbose=0)
np.savez(f"{folder}/jax.npz", *model.get_weights(), workers=len(devices),
         version=f"Keras {keras.__version__}, JAX {jax.__version__}")
