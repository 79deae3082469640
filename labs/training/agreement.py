"""Agreement between workers: equal configs, data and versions before step 1, equal weights after each epoch."""

import json
import zlib
from typing import Any

import numpy as np
import tensorflow as tf

from labs.datasets.splits import Subset
from labs.run import environment
from labs.run.errors import LabError
from labs.training import hvd_ops, keras_internals, layout


def identity(workers: int, **subsets: Subset | None) -> dict[str, Any]:
    """Return what determines a run's result besides its Config: its data, and the settings and versions of its workers.

    The number of workers is 0 if it may change.
    """
    data = {name: digests(subset) for name, subset in subsets.items() if subset is not None}
    versions = {name: value for name, value in layout.versions().items() if name not in ("python", "labs")}
    return {"data": data, "settings": {"workers": workers, **versions, **environment.recorded()}}


def digests(subset: Subset) -> dict[str, Any]:
    """Return a subset's number of images, the digest of its whole data set (with the test images), and its own."""
    return {"images": len(subset), "data_set": subset.data, "digest": subset.digest()}


def check_same_on_all_workers(**items: Any) -> None:
    """Raise LabError unless every item, anything that JSON can hold, is identical on all workers."""
    mine = {name: json.dumps(value, sort_keys=True, default=str) for name, value in items.items()}
    # Horovod: workers are started independently; only this shows that all have the same inputs.
    by_rank = hvd_ops.gather_object(mine)
    for name in mine:
        for rank, theirs in enumerate(by_rank):
            if theirs[name] != by_rank[0][name]:
                raise LabError(f"workers differ in {name}: {_difference(by_rank[0][name], theirs[name], rank)}; "
                               "start all workers from the same clone, with the same data and command line, and "
                               "do not change files while workers read them")


def _difference(zero: str, other: str, rank: int) -> str:
    """Describe how two JSON texts differ; for dictionaries, name the first keys that differ."""
    a, b = json.loads(zero), json.loads(other)
    if isinstance(a, dict):
        keys = [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)][:3]
        a, b = ({key: each.get(key) for key in keys} for each in (a, b))
    return f"rank 0 has {a}, rank {rank} has {b}"


def compare_weights(model: tf.keras.Model, when: str) -> None:
    """Raise LabError unless weights and optimizer state are equal bit for bit on all workers."""
    mine = checksums(model)
    # Horovod: workers exchange gradients, not weights; nothing else shows that the weights have stayed equal.
    by_rank = hvd_ops.gather(mine.values())
    ranks, columns = np.nonzero(by_rank != by_rank[0])
    if len(ranks):
        variable = list(mine)[columns[0]]
        raise LabError(f"workers hold different weights {when}: {variable!r} of rank {ranks[0]} differs from rank "
                       "0's, so the run is invalid; wrap the optimizer, and broadcast the initial state")


def checksums(model: tf.keras.Model) -> dict[str, int]:
    """Return a CRC-32 of every weight of a model and of every variable of its optimizer, by index and name."""
    paths = [variable.path for variable in [*model.weights, *model.optimizer.variables]]
    arrays = map(keras_internals.as_array, keras_internals.state(model))
    return {f"{index} {path}": zlib.crc32(array.reshape(-1).view(np.uint8).data)
            for index, (path, array) in enumerate(zip(paths, arrays, strict=True))}
