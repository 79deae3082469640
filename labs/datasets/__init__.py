"""Data sets: what exists, download, index, split, shard, decode and augment."""

from labs.run import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, {
    "arrays": ["read_cifar10", "read_mnist"],
    "augment": ["Augment"],
    "duplicates": ["leak"],
    "fetch": ["locate"],
    "pipeline": ["eval_batches", "train_batches"],
    "sharding": ["coverage", "refuse_unequal", "shard", "steps_per_epoch"],
    "splits": ["Splits", "Subset", "from_arrays", "from_faces", "from_folder", "from_noise", "from_tree"],
})
