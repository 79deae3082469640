"""Lab 7 as one file: a small vision transformer, whose width determines the bytes that a step exchanges.

    python examples/lab07_vit.py
    horovodrun -np 2 python examples/lab07_vit.py
    mpirun -np 2 python examples/lab07_vit.py
    sbatch jobs/example.sh examples/lab07_vit.py

Two workers compute what one computes with twice the batch size, up to rounding. The model and its training are those of
`labs run lab07_vit`: on the same images both have the same loss, up to rounding.
"""

import argparse
import itertools
import math

import horovod_keras3 as hvd  # Horovod: its Keras layer, for Keras 3.
import numpy as np
import tensorflow as tf

SEED = 1
parser = argparse.ArgumentParser(description="Train a vision transformer on small images.")
parser.add_argument("--batch-size", type=int, default=32, help="images per worker and step")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--base-lr", type=float, default=0.001, help="learning rate for 32 images per step")
parser.add_argument("--width", type=int, default=64, help="size of a token's vector, a multiple of 4")
args = parser.parse_args()

hvd.init()  # Horovod: finds the other workers; from here on rank() and size() are known.
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank():][:1], "GPU")  # Horovod: each worker of a node has its own GPU.
tf.keras.utils.set_random_seed(SEED)

rng, kinds = np.random.default_rng(SEED), np.arange(2500) % 10  # Noisy stripes; their direction is the class.
(y, x), angles = np.mgrid[:32, :32], kinds[:, None, None] * np.pi / 10
waves = np.sin(0.8 * (x * np.cos(angles) + y * np.sin(angles)) + 2 * np.pi * rng.random((2500, 1, 1)))
pictures = (128 + 20 * waves[..., None] + rng.normal(0, 60, (2500, 32, 32, 3))).clip(0, 255).astype("uint8")
images, labels, test_images, test_labels = pictures[:2000], kinds[:2000], pictures[2000:], kinds[2000:]
global_batch_size = args.batch_size * hvd.size()  # Horovod: a step uses the images of all workers.
steps = math.ceil(len(images) / global_batch_size)  # Horovod: equal on all workers; else one would wait.
scaled_lr = args.base_lr * math.sqrt(global_batch_size / 32)  # Horovod: it follows the images of all workers.


def batches():
    """Yield this worker's images, labels and weights of each step; each image is used once per epoch, by one worker."""
    shape = (steps, args.batch_size, hvd.size())
    for epoch in itertools.count():
        order = np.random.default_rng([SEED, epoch]).permutation(len(images))  # Horovod: the same on all workers.
        rows = np.resize(order, shape)  # The last step is filled up with images of the first step,
        weights = (np.arange(rows.size).reshape(shape) < len(order)).astype("float32")  # which have weight 0 there.
        weights[-1] /= weights[-1].mean()  # The other images weigh more, so that the mean of the step is theirs.
        for row, weight in zip(rows[..., hvd.rank()], weights[..., hvd.rank()], strict=True):  # Horovod: my share.
            yield images[row], labels[row], weight


class Tokens(tf.keras.layers.Layer):
    """Prepends a learned class token, and adds a learned position to each token."""
    def build(self, shape):
        random = tf.keras.initializers.RandomNormal(stddev=0.02)
        self.first = self.add_weight(shape=(1, 1, args.width), initializer="zeros")
        self.positions = self.add_weight(shape=(1, shape[1] + 1, args.width), initializer=random)

    def call(self, patches):
        return tf.concat([tf.repeat(self.first, tf.shape(patches)[0], axis=0), patches], axis=1) + self.positions


layers = tf.keras.layers
pixels = layers.Input((32, 32, 3))
x = layers.Conv2D(args.width, 8, 8)(layers.Rescaling(1 / 127.5, offset=-1)(pixels))  # A token per patch of 8 x 8.
x = Tokens()(layers.Reshape((-1, args.width))(x))
for _ in range(2):
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.Add()([x, layers.MultiHeadAttention(4, args.width // 4)(y, y)])
    y = layers.Dense(4 * args.width, activation="gelu")(layers.LayerNormalization(epsilon=1e-6)(x))
    x = layers.Add()([x, layers.Dense(args.width)(y)])
model = tf.keras.Model(pixels, layers.Dense(10, activation="softmax")(layers.LayerNormalization(epsilon=1e-6)(x)[:, 0]))
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(scaled_lr))  # Horovod: averages the gradients.
model.compile(optimizer, "sparse_categorical_crossentropy", weighted_metrics=["accuracy"],
              jit_compile=False)  # Horovod: by default, XLA cannot compile Horovod's operations.
history = model.fit(
    batches(), steps_per_epoch=steps, epochs=args.epochs, shuffle=False,
    verbose=2 if hvd.rank() == 0 else 0,  # Horovod: one worker prints.
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # Horovod: all begin with the weights of rank 0.
               hvd.callbacks.MetricAverageCallback(),  # Horovod: loss and accuracy of all workers' images.
               hvd.callbacks.LearningRateScheduleCallback(  # A transformer diverges most easily in its first steps.
                   scaled_lr, lambda epoch: min(0.01 + 0.99 * epoch, 1), staircase=False, steps_per_epoch=steps)])

if hvd.rank() == 0:  # Horovod: all workers have the same model; one evaluates it and writes it.
    loss, accuracy = model.evaluate(test_images, test_labels, verbose=0)
    print(f"{hvd.size()} workers, {4 * model.count_params():,} bytes of gradients, test accuracy {accuracy:.4f}")
    model.save_weights("lab07_vit.weights.h5")
