"""A training script as in Horovod's guide for Keras (horovod.readthedocs.io, keras.rst)."""

import sys

import tensorflow as tf

from benchmarks import cases
from benchmarks.contenders.clock import Clock

if hasattr(tf.keras, "ops"):
    # Keras 3: Horovod's own layer would never exchange a gradient.
    import horovod_keras3 as hvd
else:
    import horovod.tensorflow.keras as hvd  # type: ignore[no-redef]

hvd.init()
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
name = sys.argv[1]
for batch_size in cases.BATCH_SIZES:
    x, y = cases.images(cases.STEPS[name] * batch_size * hvd.size())
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(10_000).batch(batch_size)
    model = cases.network(name)
    optimizer = tf.keras.optimizers.SGD(cases.LEARNING_RATE * hvd.size(), cases.MOMENTUM)
    optimizer = hvd.DistributedOptimizer(optimizer)
    model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])
    clock = Clock()
    model.fit(dataset, steps_per_epoch=cases.STEPS[name], epochs=cases.EPOCHS, verbose=0,
              callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(),
                         clock])
    if hvd.rank() == 0:
        cases.show(f"{name}, batch {batch_size}", len(x) / clock.seconds_per_epoch)
