"""The same training by plain Keras, on one worker with one thread."""

import sys

import tensorflow as tf

from benchmarks import cases
from benchmarks.contenders.clock import Clock

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
name = sys.argv[1]
for batch_size in cases.BATCH_SIZES:
    x, y = cases.images(cases.STEPS[name] * cases.LONGER * batch_size)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(10_000).batch(batch_size)
    model = cases.network(name)
    model.compile(tf.keras.optimizers.SGD(cases.LEARNING_RATE, cases.MOMENTUM), "sparse_categorical_crossentropy",
                  metrics=["accuracy"])
    clock = Clock()
    model.fit(dataset, epochs=cases.EPOCHS, verbose=0, callbacks=[clock])
    cases.show(f"{name}, batch {batch_size}", len(x) / clock.seconds_per_epoch)
