"""Train for two epochs, interrupted in the middle of the second one and resumed. Repaired.

    labs launch 2 solutions/debugging/lab12.py
"""

import tempfile

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd

IMAGES, BATCH, EPOCHS, SEED = 512, 32, 2, 1


def train(first, last):
    """Take the steps from `first` to `last`, counted from the start of training."""
    for number in range(first, last):
        epoch, step = divmod(number, steps)
        order = np.random.default_rng([SEED, epoch]).permutation(IMAGES)
        batch = order[step * BATCH * hvd.size():][:BATCH * hvd.size()]
        mine = batch[hvd.rank()::hvd.size()]
        model.train_on_batch(images[mine], labels[mine])
        used[epoch, mine] += 1


hvd.init()
tf.config.set_visible_devices([], "GPU")  # So small a network needs no GPU.
tf.keras.utils.set_random_seed(SEED)  # Horovod: equal weights on all workers.
images = np.random.default_rng(SEED).normal(size=(IMAGES, 8)).astype("float32")
labels = (images.sum(axis=1) > 0).astype("float32")
model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1, activation="sigmoid")])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.5)), "binary_crossentropy", jit_compile=False)
used, steps = np.zeros((EPOCHS, IMAGES)), IMAGES // BATCH // hvd.size()
train(0, stop := steps * 3 // 2)

with tempfile.TemporaryFile() as file:
    np.savez(file, *model.get_weights(), epoch=stop // steps, step=stop % steps)
    model.set_weights([0 * each for each in model.get_weights()])  # What a new process has: nothing of the first.
    file.seek(0)
    saved = dict(np.load(file))
    model.set_weights([saved["arr_0"], saved["arr_1"]])
train(saved["epoch"] * steps + saved["step"], EPOCHS * steps)

used = np.asarray(hvd.allreduce(used, op=hvd.Sum))
loss = float(hvd.allreduce(model.evaluate(images, labels, verbose=0)))
if hvd.rank() == 0:
    print(f"of {IMAGES} images, used twice: {(used > 1).sum(axis=1)} by epoch; loss {loss:.4f}")
