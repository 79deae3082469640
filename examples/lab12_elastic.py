"""Lab 12 as one file: training that resumes from a checkpoint after a worker has died.

    python examples/lab12_elastic.py
    horovodrun -np 2 python examples/lab12_elastic.py
    mpirun -np 2 python examples/lab12_elastic.py
    sbatch jobs/example.sh examples/lab12_elastic.py

If a worker dies, the run ends. Type the same command again, also with another number of workers: the run continues
after its last complete epoch. Try it with `kill -9`. To begin from the start, delete the checkpoint. With elastic
Horovod the other workers would go on: `labs run lab12_elastic`. Its curve differs: its network has dropout.
"""

import argparse
import itertools
import math
import os

import horovod_keras3 as hvd  # Horovod: its Keras layer, for Keras 3.
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

SEED = 1
parser = argparse.ArgumentParser(description="Train on handwritten digits, with a checkpoint after each epoch.")
parser.add_argument("--batch-size", type=int, default=64, help="images per worker and step")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--base-lr", type=float, default=0.001, help="learning rate of one worker")
parser.add_argument("--checkpoint", default="lab12_elastic.npz", help="the file to save to, and to continue from")
args = parser.parse_args()

hvd.init()  # Horovod: finds the other workers; from here on rank() and size() are known.
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank():][:1], "GPU")  # Horovod: each worker of a node has its own GPU.
tf.keras.utils.set_random_seed(SEED)

digits, numbers = load_digits().images[..., None], load_digits().target  # 1,797 digits of 8 x 8 pixels.
test = np.arange(len(digits)) % 5 == 0
images, labels, test_images, test_labels = digits[~test], numbers[~test], digits[test], numbers[test]

steps = math.ceil(len(images) / args.batch_size / hvd.size())  # Horovod: equal on all workers; else one would wait.


def batches(first_epoch):
    """Yield this worker's images, labels and weights of each step; each image is used once per epoch, by one worker."""
    shape = (steps, args.batch_size, hvd.size())
    for epoch in itertools.count(first_epoch):
        order = np.random.default_rng([SEED, epoch]).permutation(len(images))  # Horovod: the same on all workers.
        rows = np.resize(order, shape)  # The last step is filled up with images of the first step,
        weights = (np.arange(rows.size).reshape(shape) < len(order)).astype("float32")  # which have weight 0 there.
        weights[-1] /= weights[-1].mean()  # The other images weigh more, so that the mean of the step is theirs.
        for row, weight in zip(rows[..., hvd.rank()], weights[..., hvd.rank()], strict=True):  # Horovod: my share.
            yield images[row], labels[row], weight


def save(epoch, logs):
    """Write a checkpoint; if the worker dies meanwhile, the one before is still there."""
    if hvd.rank() == 0:  # Horovod: one worker writes.
        np.savez(args.checkpoint + ".new.npz", *variables, epochs=epoch + 1)
        os.replace(args.checkpoint + ".new.npz", args.checkpoint)


layers = tf.keras.layers
model = tf.keras.Sequential([
    layers.Input(images.shape[1:]), layers.Rescaling(1 / 16), layers.Conv2D(16, 3, strides=2, activation="relu"),
    layers.Conv2D(32, 3, strides=2, activation="relu"), layers.Flatten(), layers.Dense(10, activation="softmax"),
])
optimizer = tf.keras.optimizers.Adam(args.base_lr * hvd.size())  # Horovod: larger batches allow a higher learning rate.
optimizer = hvd.DistributedOptimizer(optimizer)  # Horovod: each step applies the mean of all workers' gradients.
model.compile(optimizer, "sparse_categorical_crossentropy", weighted_metrics=["accuracy"],
              jit_compile=False)  # Horovod: by default, XLA cannot compile Horovod's operations.
optimizer.build(model.trainable_variables)
variables = [each for each in [*model.weights, *optimizer.variables] if each is not optimizer.learning_rate]
epochs_done = 0
if hvd.rank() == 0 and os.path.exists(args.checkpoint):  # Horovod: one worker reads; the others get its state below.
    with np.load(args.checkpoint) as file:
        epochs_done = int(file["epochs"])
        for index, variable in enumerate(variables):
            variable.assign(file[f"arr_{index}"])
    print(f"continues after epoch {epochs_done}")
epochs_done = int(hvd.broadcast(epochs_done, root_rank=0))  # Horovod: all workers take the same number of steps.
history = model.fit(
    batches(epochs_done), steps_per_epoch=steps, epochs=args.epochs, initial_epoch=epochs_done, shuffle=False,
    verbose=2 if hvd.rank() == 0 else 0,  # Horovod: one worker prints.
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # Horovod: all begin with the state of rank 0.
               hvd.callbacks.MetricAverageCallback(),  # Horovod: loss and accuracy of all workers' images.
               tf.keras.callbacks.LambdaCallback(on_epoch_end=save)])

if hvd.rank() == 0:  # Horovod: all workers have the same model; one evaluates it.
    loss, accuracy = model.evaluate(test_images, test_labels, verbose=0)
    print(f"{hvd.size()} workers, {steps} steps per epoch, test loss {loss:.4f}, test accuracy {accuracy:.4f}")
