"""Run examples on these workers, one after the other; rank 0 writes what each has trained, and how it shares images.

Each worker has another seed for its weights: they are equal in the end only if rank 0's are broadcast.

    mpirun -np 2 python run_examples.py CASES.json FOLDER
"""

import json
import sys
from pathlib import Path

import horovod.tensorflow as hvd
import numpy as np

hvd.init()
cases, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])


def rows(images):
    """Return a row of integers for each image, equal for an image and its mirror image."""
    return images.astype(np.int64).sum(axis=2).reshape(len(images), -1)


def shares(example):
    """Return the images that each worker has in the first epoch, and its number of steps."""
    batches = example["batches"](*[0] * example["batches"].__code__.co_argcount)
    mine = [images[weights > 0] for (images, _, weights), _ in zip(batches, range(example["steps"]), strict=False)]
    return hvd.allgather_object(rows(np.concatenate(mine))), hvd.allgather_object(len(mine))


for name, (file, arguments) in cases.items():
    sys.argv = [file, *arguments]
    text, seed = Path(file).read_text(), "set_random_seed(SEED)"
    assert text.count(seed) == 1
    example: dict = {"__name__": "__main__"}
    exec(compile(text.replace(seed, f"set_random_seed(SEED + {hvd.rank()})"), file, "exec"), example)
    weights = hvd.allgather_object(example["model"].get_weights())
    images, steps = shares(example)
    if hvd.rank() == 0:
        every, counts = np.unique(np.concatenate(images), axis=0, return_counts=True)
        available, copies = np.unique(rows(example["images"]), axis=0, return_counts=True)
        result = {
            "history": {key: np.ravel(values).tolist() for key, values in example["history"].history.items()},
            "weights are equal": all(np.array_equal(mine, other) for other_weights in weights
                                     for mine, other in zip(weights[0], other_weights, strict=True)),
            "each image once": np.array_equal(every, available) and np.array_equal(counts, copies),
            "steps": steps, "images": len(example["images"]),
        }
        (folder / f"{name}.json").write_text(json.dumps(result))
        np.savez(folder / f"{name}.npz", *weights[0])
