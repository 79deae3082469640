"""Learning rates for many workers: scaling rules, gradual warmup, decay."""

from __future__ import annotations

import math

import tensorflow as tf

RULES = {"none": lambda k: 1.0, "linear": float, "sqrt": math.sqrt}


def scaled_lr(base_lr: float, k: float, scaling: str = "linear") -> float:
    """Return the learning rate of a batch `k` times as large as the one that `base_lr` suits.

    Args:
        base_lr: Learning rate that is right for a reference batch.
        k: Global batch / reference batch; the number of workers, where the reference is one worker's batch.
        scaling: "linear" (Goyal et al. 2017, Accurate, Large Minibatch SGD: arXiv 1706.02677), "sqrt" (Krizhevsky
            2014, One weird trick: arXiv 1404.5997) or "none".
    """
    return base_lr * RULES[scaling](k)


@tf.keras.utils.register_keras_serializable("labs")
class Warmup(tf.keras.optimizers.schedules.LearningRateSchedule):
    """Climb in a straight line from `start` to `peak` over `warmup_steps`, stay, and fall at each milestone.

    The rate is a function of the optimizer's own step count: it is exact at every step, however many steps run
    between two callbacks, and a resumed run finds its place by itself. (Horovod's LearningRateWarmupCallback sets it
    from a callback, and raises with Keras' present SGD.)

    Args:
        start: Learning rate of step 0; the base_lr of one worker in Goyal et al., section 2.2.
        peak: Learning rate after the warmup.
        warmup_steps: Steps to climb; 0 begins at the peak.
        milestones: Steps at which the rate is multiplied by `decay`.
        decay: The factor.
    """

    def __init__(self, start: float, peak: float, warmup_steps: int = 0, milestones: tuple = (), decay: float = 0.1):
        self.start, self.peak, self.warmup_steps = start, peak, warmup_steps
        self.milestones, self.decay = tuple(milestones), decay

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        climbed = tf.minimum(step / max(self.warmup_steps, 1), 1.0) if self.warmup_steps else tf.ones_like(step)
        falls = sum(tf.cast(step >= milestone, tf.float32) for milestone in self.milestones)
        return (self.start + (self.peak - self.start) * climbed) * self.decay**falls

    def get_config(self):
        return {
            "start": self.start,
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "milestones": self.milestones,
            "decay": self.decay,
        }
