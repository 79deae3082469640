"""Learning rate schedules for many workers: scaling rules, gradual warmup, step decay."""

import math

import tensorflow as tf

RULES = {"none": lambda k: 1.0, "linear": float, "sqrt": math.sqrt}


def scaled_lr(base_lr: float, k: float, scaling: str = "linear") -> float:
    """Return the learning rate for a batch `k` times as large as the one that `base_lr` is for.

    Args:
        base_lr: Learning rate for a reference batch.
        k: Global batch / reference batch; the number of workers if the reference is one worker's batch.
        scaling: "linear" (Goyal et al. 2017, Accurate, Large Minibatch SGD: arXiv 1706.02677), "sqrt" (Krizhevsky
            2014, One weird trick: arXiv 1404.5997) or "none".
    """
    return base_lr * RULES[scaling](k)


@tf.keras.utils.register_keras_serializable("labs")
class Warmup(tf.keras.optimizers.schedules.LearningRateSchedule):
    """Linear warmup from `start` to `peak` over `warmup_steps`, then a tenth of it from each milestone on.

    The learning rate is a function of the optimizer's step count. So it is exact at every step, however many steps run
    between two callbacks, and correct in a resumed run. (Horovod's LearningRateWarmupCallback sets it from a callback.)

    Args:
        start: Learning rate of step 0; the base_lr of one worker in Goyal et al., section 2.2.
        peak: Learning rate after the warmup.
        warmup_steps: Steps of the warmup; 0 starts at the peak.
        milestones: Steps at which the learning rate is divided by 10.
    """

    def __init__(self, start: float, peak: float, warmup_steps: int = 0, milestones: tuple[int, ...] = ()):
        self.start, self.peak, self.warmup_steps, self.milestones = start, peak, warmup_steps, tuple(milestones)

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        progress = tf.minimum(step / self.warmup_steps, 1.0) if self.warmup_steps else tf.ones_like(step)
        decays = sum(tf.cast(step >= milestone, tf.float32) for milestone in self.milestones)
        return (self.start + (self.peak - self.start) * progress) * 0.1**decays

    def get_config(self):
        return dict(vars(self))
