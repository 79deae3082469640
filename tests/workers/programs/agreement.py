"""Two workers that differ, in every way that must be found; each finding is printed by rank 0."""

import numpy as np
import tensorflow as tf

from labs.run.errors import LabError
from labs.training import agreement, hvd_ops, workers


def finding(action) -> None:
    try:
        action()
        message = "nothing"
    except LabError as problem:
        message = str(problem)
    if layout.rank == 0:
        print(f"found: {message}")


layout = workers.init(seed=1)
rank = layout.rank
layers = tf.keras.layers
model = tf.keras.Sequential([layers.Input((4,)), layers.Dense(3), layers.BatchNormalization(), layers.Dropout(0.5)])
model.compile(tf.keras.optimizers.Adam())
model.optimizer.build(model.trainable_variables)

finding(lambda: agreement.check_same_on_all_workers(config={"epochs": 3, "seed": 1}, versions={"keras": "2.15"}))
finding(lambda: agreement.check_same_on_all_workers(config={"epochs": 3 + rank, "seed": 1}, versions={"keras": "2.15"}))
finding(lambda: agreement.check_same_on_all_workers(data=["a", f"b{rank}"]))
finding(lambda: agreement.compare_weights(model, "at the start"))

kernel = model.layers[0].kernel
kernel.assign_add(tf.one_hot([0, 0, 0, 0], 3) * 1e-7 * rank)
finding(lambda: agreement.compare_weights(model, "after a nudge of 1e-7"))
hvd_ops.broadcast_state(model)
finding(lambda: agreement.compare_weights(model, "after the broadcast"))
model.optimizer.iterations.assign(rank)
finding(lambda: agreement.compare_weights(model, "with another step count"))
hvd_ops.broadcast_state(model)

model.layers[1].moving_mean.assign([float(rank), 2.0, 3.0])
finding(lambda: agreement.compare_weights(model, "before averaging statistics"))
hvd_ops.average_statistics(model)
finding(lambda: agreement.compare_weights(model, "after averaging statistics"))
assert np.allclose(model.layers[1].moving_mean, [0.5, 2, 3])

# 3 samples of mean 1 on rank 0, one sample of mean 5 on rank 1: the mean of all is 2, not 3.
assert hvd_ops.mean_over_workers({"loss": 1.0 + 4 * rank}, 3 - 2 * rank) == {"loss": 2.0}
# A worker without a sample says nothing, not even "not a number".
assert hvd_ops.mean_over_workers({"loss": [1.5, float("nan")][rank]}, [2, 0][rank]) == {"loss": 1.5}
print(f"rank {rank} done, size {layout.size}, nodes {layout.nodes}, local_size {layout.local_size}, {layout.backend}")
