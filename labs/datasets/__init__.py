"""Data sets: what exists, download, index, split, shard, decode and augment."""

from typing import TYPE_CHECKING

from labs.run import attach_lazily

if TYPE_CHECKING:
    from labs.datasets.arrays import read_cifar10, read_mnist
    from labs.datasets.duplicates import find_test_leakage
    from labs.datasets.pipeline import Augment, eval_batches, train_batches
    from labs.datasets.registry import locate
    from labs.datasets.sharding import coverage, refuse_unequal, shard, steps_per_epoch
    from labs.datasets.splits import Splits, Subset, from_arrays, from_faces, from_folder, from_noise, from_tree
else:
    __getattr__, __dir__, __all__ = attach_lazily(__name__, __file__)
