"""Decide which worker trains on which image in which step."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Self

import numpy as np

from labs.run.errors import LabError, plural


@dataclasses.dataclass(frozen=True)
class Shard:
    """One worker's images of one epoch."""

    rows: np.ndarray  # Positions of the images of each step, int64 [steps, batch_size].
    weights: np.ndarray  # Weight of each image in the loss, float32 [steps, batch_size]: 1 except in the last step.
    epoch: int

    @property
    def steps(self) -> int:
        return len(self.rows)

    def into_micro_batches(self, micro_batches: int) -> Self:
        """Return the same shard with each batch cut into this many micro-batches, one per step."""
        rows, weights = (values.reshape(len(values) * micro_batches, -1) for values in (self.rows, self.weights))
        return dataclasses.replace(self, rows=rows, weights=weights)


def steps_per_epoch(n: int, batch_size: int, size: int) -> int:
    """Return the number of steps in which `size` workers process `n` images once."""
    return math.ceil(n / (batch_size * size))


def refuse_large_batch(global_batch_size: int, images: int) -> None:
    """Refuse a step for which there are too few images: most of its work would be on padding."""
    if global_batch_size > images:
        raise LabError(f"a step of {global_batch_size:,} images (--batch-size times workers) is more than the "
                       f"{images:,} training images; lower --batch-size")


def refuse_unequal(batch_size: int, micro_batches: int) -> None:
    """Refuse a batch that cannot be split into equal micro-batches."""
    if batch_size % micro_batches:
        raise LabError(f"a batch of {batch_size} cannot be split into {micro_batches} equal micro-batches; "
                       "choose another --batch-size")


def shard(positions: int | np.ndarray, batch_size: int, rank: int, size: int, epoch: int, seed: int,
          shuffle: bool = True) -> Shard:
    """Return one worker's shard of an epoch: every worker takes equally many steps, and every image is used once.

    All workers shuffle in the same order, a new one in each epoch, and step k trains on the k-th global batch of that
    order. So the images of a step depend on the global batch size, not on the number of workers.

    The last global batch is padded with images of the first step: padding has weight 0, and the real images are
    re-weighted so that the mean of `weight * loss` over the padded batch is the mean loss of the real images. They are
    spread evenly over the workers.

    Args:
        positions: Positions of the training images [n]; or their number, if they are the first ones.
        batch_size: Images per worker and step.
        epoch: From 0.
        seed: The same on all workers.
        shuffle: If False, the order of `positions` is kept.
    """
    positions = np.arange(positions) if isinstance(positions, int | np.integer) else np.asarray(positions)
    if not len(positions):
        raise LabError("there are no training images to share; check the data folder and the splits")
    if shuffle:
        positions = np.random.Generator(np.random.PCG64([seed, epoch])).permutation(positions)
    global_batch_size = batch_size * size
    steps = steps_per_epoch(len(positions), batch_size, size)
    in_last_step = len(positions) - (steps - 1) * global_batch_size
    weights = np.ones(steps * global_batch_size, np.float32)
    weights[len(positions):] = 0
    weights[-global_batch_size:][:in_last_step] = global_batch_size / in_last_step
    return Shard(_columns_of(rank, np.resize(positions, len(weights)), batch_size, size),
                 _columns_of(rank, weights, batch_size, size), epoch)


def _columns_of(rank: int, values: np.ndarray, batch_size: int, size: int) -> np.ndarray:
    """Return every size-th value of each step, from `rank` on: so the padding at the end is spread over the workers."""
    return np.ascontiguousarray(values.reshape(-1, batch_size, size)[:, :, rank])


def coverage(shards: Sequence[Shard], positions: int | np.ndarray) -> str:
    """Return a line that says that all workers together train on every image once; raise LabError unless they do."""
    positions = np.arange(positions) if isinstance(positions, int | np.integer) else np.asarray(positions)
    steps, epoch = shards[0].steps, shards[0].epoch
    if any((each.steps, each.epoch) != (steps, epoch) for each in shards):
        raise LabError(f"epoch {epoch + 1}: the workers take {[each.steps for each in shards]} steps; "
                       "give them the same images, batch_size, epoch and size")
    used = np.sort(np.concatenate([each.rows[each.weights > 0] for each in shards]))
    if not np.array_equal(used, np.sort(positions)):
        raise LabError(f"epoch {epoch + 1}: {len(np.unique(used))} of {len(positions)} training images used, "
                       f"in {len(used)} draws; give the workers one seed and size, and each its own rank")
    if not np.allclose(np.mean([each.weights.mean(axis=1) for each in shards], axis=0), 1, atol=1e-4):
        raise LabError(f"epoch {epoch + 1}: the weights of a step do not average 1; take them from shard()")
    return (f"epoch {epoch + 1}: {len(used)} of {len(positions)} training images used once, "
            f"by {plural(len(shards), 'worker')} in {steps} steps")
