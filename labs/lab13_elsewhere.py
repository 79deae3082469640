"""Lab 13: the same step elsewhere: other ways to exchange, and other frameworks.

    labs run lab13_elsewhere --workers 2
    labs run lab13_elsewhere --study frameworks
    sbatch jobs/lab13_elsewhere.sh --study frameworks
"""

import dataclasses
import math
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from labs import Lab, Options, Sweep, datasets, fields, main, models, results, training
from labs.run import mpirun
from labs.run.paths import ROOT

SHORT = Annotated[int, fields.Range(1, 1024)]


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 13."""

    study: Literal["methods", "frameworks"] = "methods"
    """The time of six ways to exchange, or ten steps in three frameworks."""
    data: fields.Mnist = "embedded"
    batch_size: fields.BatchSize = 32
    base_lr: fields.LearningRate = 0.05
    """Learning rate of SGD."""
    momentum: fields.Momentum = 0.9
    """Momentum of SGD in the study of frameworks."""
    every: SHORT = 4
    """Steps between two exchanges of accumulation and local SGD."""
    rounds: SHORT = 12
    """Rounds of timing; in each, every method is timed with its exchange and without."""
    threads: fields.Threads = 1
    seed: fields.Seed = 1


PRESETS = {
    "demo": Config(),
    "paper": Config(data="real", batch_size=128, threads=0, rounds=50),
    "cluster": Config(),
}
LEDGER = "C6: compute and communication of a step, and the weights after it, for each way to exchange"
EQUAL = "the weights after ten steps in Horovod, PyTorch DDP and keras.distribution on JAX"
SWEEPS = {
    "demo": (
        Sweep("methods", LEDGER, workers=(2,)),
        Sweep("frameworks", EQUAL, {"study": ("frameworks",)}, workers=(1,)),
    ),
    "paper": (Sweep("methods", LEDGER, workers=(2, 4)),),
    "cluster": (Sweep("links", LEDGER, workers=(2,), nodes=Sweep.node_per_worker, links=("100mbit", "1gbit")),),
}
METHODS = ("plain", "fp16", "accumulation", "local SGD", "batch norm", "SyncBN")
"""Ways to exchange. "batch norm" is "plain" with another network, for comparison with "SyncBN"."""
STEPS = 10
BLOCKS = 3  # Blocks of `every` steps that are timed as one.


def network(norm: str = ""):
    """Return lab 2's network; `norm` is "batch norm" or "SyncBN" after each convolution, or neither."""
    import tensorflow as tf

    layers = tf.keras.layers
    stack = [layers.Input((28, 28, 1))]
    for channels in (16, 32):
        stack += [layers.Conv2D(channels, 3, strides=2)]
        stack += [models.BatchNorm(norm == "SyncBN")] if norm in ("batch norm", "SyncBN") else []
        stack += [layers.ReLU()]
    return tf.keras.Sequential([*stack, layers.Flatten(), layers.Dense(10, activation="softmax")])


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Measure the ways to exchange, or start the three frameworks, and return the run's record."""
    with training.start(config, options) as job:
        return {"methods": _methods, "frameworks": _frameworks}[config.study](job)


# Ways to exchange.

class Method:
    """Blocks of `every` steps of one of METHODS, on several workers or without any exchange."""

    def __init__(self, name: str, config: Config, exchanging: bool):
        import horovod.tensorflow as hvd
        import tensorflow as tf

        self.name, self.config, self.exchanging = name, config, exchanging
        self.sent: list[list[int]] = []
        """The bytes of the tensors in each all-reduce of a block."""
        self.compression = hvd.Compression.fp16 if name == "fp16" else hvd.Compression.none
        tf.keras.utils.set_random_seed(config.seed)
        self.model = network(name if exchanging else name.replace("SyncBN", "batch norm"))
        self.weights = [training.keras_internals.tf_variable(weight) for weight in self.model.trainable_weights]
        self.start = [weight.numpy() for weight in self.weights]
        self.block = tf.function(self._block, autograph=False)

    def _mean(self, tensors: list) -> list:
        """Return the mean of each tensor over all workers."""
        import horovod.tensorflow as hvd

        if not self.exchanging:
            return tensors
        size = 2 if self.name == "fp16" else 4
        self.sent.append([size * tensor.shape.num_elements() for tensor in tensors])
        # Horovod: one message for all of them.
        return hvd.grouped_allreduce(tensors, compression=self.compression)

    def _gradients(self, images, labels) -> list:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            outputs = self.model(images, training=True)
            loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels, outputs))
        return tape.gradient(loss, self.weights)

    def _block(self, images, labels) -> None:
        """Take one step with each of the batches [every, batch, ...]."""
        import tensorflow as tf

        self.sent.clear()
        every, learning_rate = self.config.every, self.config.base_lr
        batches = list(zip(tf.unstack(images), tf.unstack(labels), strict=True))
        if self.name == "accumulation":
            each = [self._gradients(*batch) for batch in batches]
            updates = iter([[sum(same) / every for same in zip(*each, strict=True)]])
            learning_rate *= every  # A larger batch, so a higher rate (lab 3).
        else:
            updates = (self._gradients(*batch) for batch in batches)  # Each after the update before it.
        for gradients in updates:
            mean = gradients if self.name == "local SGD" else self._mean(gradients)
            for weight, gradient in zip(self.weights, mean, strict=True):
                weight.assign_sub(learning_rate * gradient)
        if self.name == "local SGD":
            weights = [weight.read_value() for weight in self.weights]
            for weight, mean in zip(self.weights, self._mean(weights), strict=True):
                weight.assign(mean)

    def end(self, images, labels):
        """Return the change of all weights by one block from their start, as one vector."""
        import numpy as np

        for weight, start in zip(self.weights, self.start, strict=True):
            weight.assign(start)
        self.block(images, labels)
        return np.concatenate([(weight.numpy() - start).ravel() for weight, start in
                               zip(self.weights, self.start, strict=True)])

    def seconds(self, images, labels) -> float:
        """Return the mean seconds of a step, of blocks that all workers begin together."""
        training.hvd_ops.barrier()
        began = time.perf_counter()
        for _ in range(BLOCKS):
            self.block(images, labels)
        self.weights[-1].numpy()  # Waits until it is computed, also on a GPU.
        return (time.perf_counter() - began) / BLOCKS / self.config.every

    def messages(self) -> tuple[float, int]:
        """Return the all-reduces per step, and the bytes of their tensors."""
        every, norms = self.config.every, [layer for layer in self.model.layers if isinstance(layer, models.BatchNorm)]
        count, nbytes = len(self.sent), sum(map(sum, self.sent))
        if self.name == "SyncBN":  # Forward and backward, each time two numbers per channel.
            count += 2 * every * len(norms)
            nbytes += 2 * every * sum(2 * 4 * layer.gamma.shape[0] for layer in norms)
        return count / every, nbytes // every


def _methods(job):
    """Time a step of each method with its exchange and without, and compare its weights with one worker's."""
    import numpy as np
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")  # TensorFlow mistakes the methods' functions for one that is retraced often.
    config = job.config
    images, labels = _first_images(config, config.every * config.batch_size * job.size)
    shape = (config.every, config.batch_size * job.size)
    whole = images.reshape(*shape, 28, 28, 1), labels.reshape(shape)
    mine = tuple(array[:, job.rank::job.size] for array in whole)  # Horovod: every worker takes its own images.
    pairs = {name: (Method(name, config, False), Method(name, config, True)) for name in METHODS}
    messages = []
    # One worker with the images of all: what accumulation and local SGD only approximate.
    ones = {name: pairs[name][0].end(*whole) for name in ("plain", "batch norm")}
    for name, (_, together) in pairs.items():
        one = ones["batch norm" if name in ("batch norm", "SyncBN") else "plain"]
        distance = np.linalg.norm(together.end(*mine) - one) / np.linalg.norm(one)
        count, nbytes = together.messages()
        messages.append({"method": name, "exchanges_per_step": count, "bytes_per_step": nbytes,
                         "distance": float(distance)})
    rows = []
    for number in range(config.rounds):
        first = number % len(METHODS)
        for name in METHODS[first:] + METHODS[:first]:
            alone, together = pairs[name]
            times = {"compute_seconds": alone.seconds(*mine), "step_seconds": together.seconds(*mine)}
            rows.append({"round": number + 1, "method": name} | training.hvd_ops.mean_over_workers(times, 1.0))
    for row in messages:
        step = np.median([each["step_seconds"] for each in rows if each["method"] == row["method"]])
        job.print_once(f"{row['method']}: {1e3 * step:.2f} ms per step, {row['bytes_per_step']:,} bytes in "
                       f"{row['exchanges_per_step']:g} exchanges")
    return results.finish(job, [], tables={"messages": messages, "rounds": rows},
                          parameters=pairs["plain"][0].model.count_params())


def _first_images(config: Config, count: int):
    """Return images, float32 [count, 28, 28, 1] from 0 to 1, and labels, in a random order."""
    import numpy as np

    arrays = datasets.read_mnist(datasets.locate("mnist", config.data))
    order = np.resize(np.random.default_rng(config.seed).permutation(len(arrays.train_labels)), count)
    images = arrays.train_images[order].reshape(-1, 28, 28, 1)
    return images.astype(np.float32) / 255, arrays.train_labels[order].astype(np.int32)


# Frameworks.

PROGRAMS: dict[str, tuple[str, str, str, list[str]]] = {
    "Horovod": ("keras_horovod.py", "horovod.npz", "horovod", ["horovodrun", "-np", "2", "python"]),
    "PyTorch DDP": ("pytorch_ddp.py", "ddp.npz", "torch",
                    ["python", "-m", "torch.distributed.run", "--nproc-per-node", "2"]),
    "keras.distribution on JAX": ("keras_jax.py", "jax.npz", "jax", ["python"]),
}
"""By framework, Horovod first: its program in examples/lab13_elsewhere, the file that it writes, the package that it
needs, and the command that starts it."""
FRAMES = ROOT / ".venv-frames/bin/python"
"""A Python with torch and jax, which may be missing beside TensorFlow; otherwise the kit's Python is tried."""


def _frameworks(job):
    """Start the three programs (rank 0) from one file of weights and images, and compare the weights they write."""
    rows: list[dict[str, Any]] = []
    if job.rank == 0:
        folder = job.folder / "frameworks"
        folder.mkdir(parents=True, exist_ok=True)
        start = _write_start(job.config, folder / "start.npz")
        for name in PROGRAMS:
            rows.append({"framework": name} | _run_program(name, folder))
            if not rows[-1]["skipped"]:
                rows[-1] |= _compare(name, folder, start)
        for row in rows:
            job.print_once(row["framework"] + ": " + (row["skipped"] or f"weights differ from Horovod's by at most "
                           f"{row['difference']:.1e}, after changes of up to {row['change']:.2g}"))
    # Horovod: the other workers wait for rank 0.
    rows = training.hvd_ops.broadcast_object(rows)
    return results.finish(job, [], tables={"frameworks": rows})


def _write_start(config: Config, path: Path):
    """Write the weights, images, labels and settings that all frameworks begin with, and return the weights."""
    import numpy as np
    import tensorflow as tf

    tf.keras.utils.set_random_seed(config.seed)
    weights = network().get_weights()
    images, labels = _first_images(config, STEPS * 2 * config.batch_size)
    np.savez(path, images=images, labels=labels, batch_size=config.batch_size, base_lr=config.base_lr,
             momentum=config.momentum, **{f"weight{number}": weight for number, weight in enumerate(weights)})
    return weights


def _run_program(name: str, folder: Path) -> dict[str, Any]:
    """Run a framework's program, and return its seconds, or why it was skipped."""
    file, _, package, words = PROGRAMS[name]
    python = str(FRAMES) if FRAMES.exists() and package != "horovod" else sys.executable
    env = mpirun.environment() | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "OMP_NUM_THREADS": "1",
                                  "JAX_PLATFORMS": "cpu",
                                  "PATH": os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])}
    began = time.perf_counter()
    command = [python if word == "python" else word for word in words]
    done = subprocess.run([*command, str(ROOT / "examples/lab13_elsewhere" / file), str(folder)], env=env, text=True,
                          capture_output=True, check=False)
    if f"No module named '{package}" in done.stderr:
        return {"skipped": f"skipped: {package} is not installed; examples/lab13_elsewhere/{file} says how"}
    if done.returncode:
        return {"skipped": f"failed with code {done.returncode}: {shlex.join([*command, file])}"}
    return {"skipped": "", "seconds": time.perf_counter() - began}


def _compare(name: str, folder: Path, start) -> dict[str, Any]:
    """Return a framework's largest difference of a weight from Horovod's, and its largest change from the start."""
    import numpy as np

    def distance(weights):
        return max(float(np.abs(saved[f"arr_{number}"] - weight).max()) for number, weight in enumerate(weights))

    with np.load(folder / PROGRAMS[name][1], allow_pickle=False) as saved:
        path, difference = folder / PROGRAMS["Horovod"][1], math.nan
        if path.exists():
            with np.load(path, allow_pickle=False) as ours:
                difference = distance([ours[f"arr_{number}"] for number in range(len(start))])
        return {"workers": int(saved["workers"]), "version": str(saved["version"]), "change": distance(start),
                "difference": difference}


LAB = Lab(Config, PRESETS, run, sweeps=SWEEPS, data_set="mnist")

if __name__ == "__main__":
    main()
