"""Batch norm by the statistics of one worker's batch, or of the batches of all workers (SyncBN)."""

import horovod.tensorflow as hvd
import tensorflow as tf


class BatchNorm(tf.keras.layers.Layer):
    """Normalizes images by mean and variance of the current batch, or of the batches of all workers `together`.

    It keeps no running statistics. Keras' `BatchNormalization(synchronized=True)` knows the replicas of
    `tf.distribute`, not Horovod's workers, and Horovod's `SyncBatchNormalization` raises an error on Keras 3.
    """

    def __init__(self, together: bool):
        super().__init__()
        self.together = together

    def build(self, shape):
        self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=(shape[-1],), initializer="zeros", name="beta")

    def call(self, images):
        moments = tf.stack([tf.reduce_mean(images, (0, 1, 2)), tf.reduce_mean(images * images, (0, 1, 2))])
        if self.together:
            # Horovod: means of values and of squares can be averaged, variances cannot. Its gradient is an all-reduce.
            moments = hvd.allreduce(moments)
        mean, square = tf.unstack(moments)
        return (images - mean) * tf.math.rsqrt(square - mean * mean + 1e-3) * self.gamma + self.beta

    def compute_output_shape(self, shape):
        return shape
