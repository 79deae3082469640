"""The same training with tf.distribute.MultiWorkerMirroredStrategy, as in TensorFlow's guide to custom loops.

    python -m benchmarks.contenders.mwms NETWORK SIZE      starts SIZE workers of this program and waits for them
"""

import json
import os
import socket
import subprocess
import sys
import time


def start(name: str, size: int) -> int:
    ports = []
    for _ in range(size):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    workers = [f"127.0.0.1:{port}" for port in ports]
    configs = [{"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}} for rank in range(size)]
    processes = [subprocess.Popen([sys.executable, "-m", "benchmarks.contenders.mwms", name],
                                  env=os.environ | {"TF_CONFIG": json.dumps(config)}) for config in configs]
    try:
        return processes[0].wait()  # The chief exits first; the errors of the others about that are noise.
    finally:
        for process in processes:
            process.kill()
            process.wait()


def train(name: str) -> None:
    import tensorflow as tf

    from benchmarks import cases

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    config = json.loads(os.environ["TF_CONFIG"])
    size, rank = len(config["cluster"]["worker"]), config["task"]["index"]
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    for batch_size in cases.BATCH_SIZES:
        x, y = cases.images(cases.STEPS[name] * batch_size * size)
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(10_000).batch(batch_size * size)
        step = training_step(strategy, name, size)
        batches = iter(strategy.experimental_distribute_dataset(dataset.with_options(options)))
        ends = []
        for _ in range(cases.EPOCHS):
            for _ in range(cases.STEPS[name]):
                step(next(batches))
            ends.append(time.perf_counter())
        if rank == 0:
            cases.show(f"{name}, batch {batch_size}", len(x) / ((ends[-1] - ends[0]) / (cases.EPOCHS - 1)))


def training_step(strategy, name: str, size: int):
    """Return a function that trains on a batch: a custom loop, since Keras 3's `fit` does not work on this strategy.

    It fails where it takes the mean of the workers' first batches, and again where it joins their metrics.
    """
    import tensorflow as tf

    from benchmarks import cases

    with strategy.scope():
        model = cases.network(name)
        optimizer = tf.keras.optimizers.SGD(cases.LEARNING_RATE * size, cases.MOMENTUM)
        optimizer.build(model.trainable_variables)
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
        losses = tf.keras.losses.SparseCategoricalCrossentropy(reduction="none")

    def on_each_worker(images, labels):
        with tf.GradientTape() as tape:
            outputs = model(images, training=True)
            loss = tf.nn.compute_average_loss(losses(labels, outputs))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        accuracy.update_state(labels, outputs)

    return tf.function(lambda batch: strategy.run(on_each_worker, batch))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(start(sys.argv[1], int(sys.argv[2])))
    train(sys.argv[1])
