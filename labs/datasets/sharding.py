"""Who trains on which image in which step."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from labs.run.errors import LabError


@dataclasses.dataclass(frozen=True)
class Shard:
    """One worker's images of one epoch."""

    rows: np.ndarray
    """Positions of the images of each step, int64 [steps, batch_size]."""
    weights: np.ndarray
    """Of each image in the loss, float32 [steps, batch_size]: 1, but see `shard` on the last step."""
    epoch: int

    @property
    def steps(self) -> int:
        return len(self.rows)

    def cut(self, pieces: int) -> Shard:
        """Return the same share in smaller batches: each of these is a piece of one of those."""
        rows, weights = (values.reshape(len(values) * pieces, -1) for values in (self.rows, self.weights))
        return Shard(rows, weights, self.epoch)


def steps_per_epoch(n: int, batch_size: int, size: int) -> int:
    """Return the steps in which `size` workers see `n` images once."""
    return math.ceil(n / (batch_size * size))


def shard(
    positions: int | np.ndarray,
    batch_size: int,
    rank: int,
    size: int,
    epoch: int,
    seed: int,
    shuffle: bool = True,
) -> Shard:
    """Return one worker's share of an epoch: equal steps for all, every image once by one worker.

    All workers draw one order, new in each epoch, and step k trains on the k-th global batch of it; so what a
    step sees depends on the global batch size and not on the number of workers. Images left over for the last
    step are dealt out evenly, with weights that make the mean of `weight * loss` over all places the mean
    loss of these images; the other places repeat images of the first step at weight 0.

    Args:
        positions: Of the training images [n]; or their number, if they are the first ones.
        batch_size: Images per worker and step.
        rank: Of this worker.
        size: Number of workers.
        epoch: From 0.
        seed: The same on all workers.
        shuffle: Draw an order; otherwise as in `positions`.

    Raises:
        LabError: There is nothing to share, or a number is out of range.
    """
    positions = np.arange(positions) if isinstance(positions, int | np.integer) else np.asarray(positions)
    if not len(positions):
        raise LabError("there are no training images to share; check the data folder and the splits")
    if batch_size < 1 or not 0 <= rank < size or seed < 0:
        raise LabError(f"cannot share with batch_size {batch_size}, rank {rank} of {size}, seed {seed}; "
                       "batch_size must be 1 or more, seed 0 or more")
    if shuffle:
        positions = np.random.Generator(np.random.PCG64([seed, epoch])).permutation(positions)
    steps = steps_per_epoch(len(positions), batch_size, size)
    weights = np.ones(steps * batch_size * size, np.float32)
    left_over = len(positions) - (steps - 1) * batch_size * size
    weights[len(positions):] = 0
    weights[-batch_size * size:][:left_over] = batch_size * size / left_over
    return Shard(_mine(np.resize(positions, len(weights)), batch_size, rank, size),
                 _mine(weights, batch_size, rank, size), epoch)


def _mine(values: np.ndarray, batch_size: int, rank: int, size: int) -> np.ndarray:
    """Every size-th value of each step, from the rank-th on: left-over images come first and go round."""
    return np.ascontiguousarray(values.reshape(-1, batch_size, size)[:, :, rank])


def coverage(shards: Sequence[Shard], positions: int | np.ndarray) -> str:
    """Return the line that says that all workers together trained on every image once.

    Args:
        shards: Of all workers, for one epoch.
        positions: Of the training images [n]; or their number, if they are the first ones.

    Raises:
        LabError: It is not so.
    """
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
            f"by {len(shards)} worker{'s' * (len(shards) > 1)} in {steps} steps")
