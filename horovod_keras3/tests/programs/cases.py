"""What `horovod_keras3` promises, on two workers or three; rank 0 writes the failures of each case as JSON.

A case compares with Keras alone: each worker also trains a copy of the model by itself, on the whole batch.
"""

import json
import re
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import horovod_keras3 as hvd

K = tf.keras
SIZE_OF_VOCABULARY, WORDS, STEPS, BATCH = 9, 5, 6, 16
random = np.random.default_rng(0)
SENTENCES = random.integers(0, SIZE_OF_VOCABULARY, (STEPS * BATCH, WORDS))
NUMBERS = random.normal(size=(STEPS * BATCH, 4)).astype("f")
TARGETS = random.normal(size=(STEPS * BATCH, 3)).astype("f")


def dense() -> K.Model:
    K.utils.set_random_seed(3)
    return K.Sequential([K.layers.Input((4,)), K.layers.Dense(6, "relu"), K.layers.Dense(3)])


def embedding_first() -> K.Model:
    K.utils.set_random_seed(3)
    return K.Sequential([K.layers.Input((WORDS,), dtype="int32"), K.layers.Embedding(SIZE_OF_VOCABULARY, 4),
                         K.layers.Flatten(), K.layers.Dense(3)])


def embedding_last() -> K.Model:
    """A layer that creates its embedding after a dense kernel."""
    K.utils.set_random_seed(3)

    class Scaled(K.layers.Layer):
        def __init__(self):
            super().__init__()
            self.scale, self.words = K.layers.Dense(4, use_bias=False), K.layers.Embedding(SIZE_OF_VOCABULARY, 4)

        def build(self, shape):
            self.scale.build((None, 4))
            self.words.build(shape)

        def call(self, inputs):
            return self.scale(tf.reduce_mean(self.words(inputs), axis=1))

    return K.Sequential([K.layers.Input((WORDS,), dtype="int32"), Scaled(), K.layers.Dense(3)])


def gathered(arrays) -> np.ndarray:
    """Return all workers' arrays, a row per rank."""
    row = np.concatenate([np.ravel(np.asarray(each, np.float64)) for each in arrays])
    return hvd.allgather(row[None]).numpy()


def state(model, optimizer=None) -> list:
    return [np.asarray(each) for each in [*model.weights, *(optimizer or model.optimizer).variables]]


def share(data: np.ndarray, passes: int = 1) -> np.ndarray:
    """Return this worker's half of each batch, pass by pass."""
    split = data.reshape(STEPS, passes, hvd.size(), -1, *data.shape[1:])
    return split[:, :, hvd.rank()].reshape(-1, *data.shape[1:])


def train(model, inputs, targets, batch_size, **compiled) -> None:
    model.compile(loss="mse", jit_compile=False, **compiled)
    model.fit(inputs, targets, batch_size=batch_size, shuffle=False, verbose=0)


def same(optimizer, network=dense, *, passes=1, rtol=1e-4, optimizer_state=True, compiled=None, clipped=False,
         **wrapped) -> K.Model:
    """Check that the workers together do what one does with the whole batch, and end bit-equal; return the model.

    Args:
        optimizer: Makes one.
        clipped: The one worker clips the sums of the rows, unlike Keras, which clips the parts of a sparse gradient.
    """
    inputs = NUMBERS if network is dense else SENTENCES
    alone, together = network(), network()
    reference = optimizer()
    if clipped:
        reference.apply = lambda grads, variables: type(reference).apply(
            reference, list(map(tf.convert_to_tensor, grads)), variables)
    train(alone, inputs, TARGETS, BATCH, optimizer=reference)
    wrapped |= {"backward_passes_per_step": passes, "average_aggregated_gradients": True} if passes > 1 else {}
    train(together, share(inputs, passes), share(TARGETS, passes), BATCH // hvd.size() // passes,
          optimizer=hvd.DistributedOptimizer(optimizer(), **wrapped), **(compiled or {}))
    result = gathered(state(together))
    assert (result == result[0]).all(), "the workers differ"
    pairs = zip(state(together) if optimizer_state else together.get_weights(),
                state(alone) if optimizer_state else alone.get_weights(), strict=True)
    for index, (mine, expected) in enumerate(pairs):
        np.testing.assert_allclose(mine, expected, rtol, 1e-6, err_msg=f"variable {index}")
    return together


def schedule(rate: float) -> K.optimizers.schedules.LearningRateSchedule:
    return K.optimizers.schedules.ExponentialDecay(rate, 2, 0.5)


SAME = {
    "momentum": lambda: same(lambda: K.optimizers.SGD(0.1, 0.9)),
    "nesterov": lambda: same(lambda: K.optimizers.SGD(0.1, 0.9, nesterov=True)),
    "adamw_clipped": lambda: same(lambda: K.optimizers.AdamW(0.01, weight_decay=0.1, global_clipnorm=0.5)),
    "accumulation_of_keras": lambda: same(lambda: K.optimizers.Adam(0.01, gradient_accumulation_steps=2)),
    "ema": lambda: same(lambda: K.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2)),
    "schedule": lambda: same(lambda: K.optimizers.SGD(schedule(0.2))),
    "embedding_last": lambda: same(lambda: K.optimizers.Adam(0.01), embedding_last),
    "embedding_clipped": lambda: same(lambda: K.optimizers.SGD(0.5, clipnorm=0.1), embedding_last, clipped=True),
    "embedding_as_dense_clipped": lambda: same(lambda: K.optimizers.SGD(0.5, clipnorm=0.1), embedding_last,
                                               clipped=True, sparse_as_dense=True),
    "embedding_as_dense": lambda: same(lambda: K.optimizers.SGD(0.1), embedding_first, sparse_as_dense=True),
    "eager": lambda: same(lambda: K.optimizers.Adam(0.01), embedding_first, compiled={"run_eagerly": True}),
    "several_steps": lambda: same(lambda: K.optimizers.Adam(0.01), embedding_first,
                                  compiled={"steps_per_execution": 10}),
    "groups": lambda: same(lambda: K.optimizers.SGD(0.1), groups=2, gradient_predivide_factor=4.0),
    "sum": lambda: same(lambda: K.optimizers.SGD(0.1), compiled={"loss_weights": 0.5}, op=hvd.Sum),
    "fp16_compression": lambda: same(lambda: K.optimizers.SGD(0.1), rtol=0.02, compression=hvd.Compression.fp16),
    "eager_passes": lambda: same(lambda: K.optimizers.SGD(0.1, 0.9), passes=2, optimizer_state=False,
                                 compiled={"run_eagerly": True}),
}
"""What ends bit-equal on all workers, and where one worker with the whole batch ends."""


def case_listed_groups():
    model = dense()
    optimizer = hvd.DistributedOptimizer(K.optimizers.SGD(1.0), groups=[model.weights[:2], [model.weights[3]]])
    grads = [tf.fill(each.shape, float(index + hvd.rank())) for index, each in enumerate(model.weights)]
    before = model.get_weights()
    optimizer.apply(grads, model.weights)
    for index, (old, new) in enumerate(zip(before, model.get_weights(), strict=True)):
        np.testing.assert_allclose(old - new, index + 0.5, 1e-5)


def exchanges(model, name: str) -> dict[str, set[str]]:
    """Return the exchanges in a training step's graph, each with what must run before it."""
    optimizer = hvd.DistributedOptimizer(K.optimizers.SGD(1.0), name=name)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            wrong = tf.reduce_mean((model(NUMBERS[:4]) - TARGETS[:4]) ** 2)
        optimizer.apply(tape.gradient(wrong, model.trainable_variables), model.trainable_variables)

    operations = step.get_concrete_function().graph.get_operations()
    return {each.name: upstream(each) for each in operations if re.match(r"Horovod(Grouped)?Allreduce$", each.type)}


def upstream(operation) -> set[str]:
    """Return the names of all operations that must run before this one."""
    seen, rest = set(), [operation]
    while rest:
        current = rest.pop()
        before = [*(each.op for each in current.inputs), *current.control_inputs]
        rest += [each for each in before if each.name not in seen]
        seen |= {each.name for each in before}
    return seen


def case_when_gradients_are_exchanged():
    """The last layer's while those of the layers before it are computed; those of a small model as one group."""
    wide = K.Sequential([K.layers.Input(NUMBERS.shape[1:]), K.layers.Dense(400), K.layers.Dense(400),
                         K.layers.Dense(TARGETS.shape[-1])])
    upstream_of = exchanges(wide, "overlap")
    assert len(upstream_of) == len(wide.trainable_variables)
    assert not any(name in others for others in upstream_of.values() for name in upstream_of)
    computed = [len(upstream_of[f"HorovodAllreduce_overlap_{index}"]) for index in (0, 4)]
    assert computed[1] < computed[0], "the last kernel's gradient waits for the first kernel's"
    assert len(exchanges(dense(), "small")) == 1


def case_passes():
    """Adam, its schedule and `iterations` count updates, not passes."""
    model = same(lambda: K.optimizers.Adam(schedule(0.01)), passes=4, optimizer_state=False,
                 compiled={"steps_per_execution": 3})
    assert int(model.optimizer.iterations) == STEPS


def case_passes_communicate_once():
    """Between two exchanges a worker does not wait for another: rank 0 is a pass ahead at the barrier."""
    variable = tf.Variable([1.0, 1.0])
    optimizer = hvd.DistributedOptimizer(K.optimizers.SGD(1.0), backward_passes_per_step=3)
    step = tf.function(lambda grad: optimizer.apply([grad], [variable]))
    traces = set()
    for update in range(3):
        ahead = 2 if update and hvd.rank() == 0 else 0  # The first pass is traced: there the workers agree.
        for _ in range(ahead):
            step(tf.constant([1.0, 2.0]))
        hvd.allreduce(0.0)
        for _ in range(3 - ahead):
            step(tf.constant([1.0, 2.0]))
        traces.add(step.experimental_get_tracing_count())
    np.testing.assert_allclose(variable, [-8.0, -17.0])
    assert len(traces) == 1, "a pass is traced again"


def case_gradients_of_other_types():
    """A variable, as in an accumulation loop, an array, and a variable of Keras are exchanged as a tensor is."""
    mine, mean = 1.0 + hvd.rank(), (1 + hvd.size()) / 2
    for grad in (tf.Variable(mine), np.float32(mine), K.Variable(mine)):
        for wrap in (tf.function, lambda step: step):
            variable = tf.Variable(0.0)
            optimizer = hvd.DistributedOptimizer(K.optimizers.SGD(1.0))
            optimizer.build([variable])
            wrap(lambda: optimizer.apply([grad], [variable]))()  # noqa: B023 - called at once
            assert float(variable) == -mean, type(grad)


def case_sums_are_forgotten():
    """An infinite sum after its update, and two of four passes after a restore: the schedule counts one update."""
    variable = tf.Variable(1.0)
    optimizer = hvd.DistributedOptimizer(K.optimizers.SGD(0.0), backward_passes_per_step=2)
    for value in (np.inf, 1.0):
        optimizer.apply([tf.constant(value)], [variable])
    assert all(float(each) == 0 for each in optimizer.horovod.sums.values())
    variable = tf.Variable(0.0)
    optimizer = hvd.DistributedOptimizer(
        K.optimizers.SGD(K.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5)), backward_passes_per_step=4)
    for number in range(10):
        if number == 6:
            optimizer.horovod.reset()
        optimizer.apply([tf.constant(1.0)], [variable])
    assert int(optimizer.iterations) == 2
    np.testing.assert_allclose(variable, -4 * (1 + 0.5))


def case_mixed_float16():
    """In step 3 the gradient of one worker's half is infinite: all workers leave the step out."""
    K.mixed_precision.set_global_policy("mixed_float16")
    try:
        inputs = NUMBERS.copy()
        inputs[2 * BATCH + BATCH // 2] = 6e4
        for wrap in (lambda each: each, K.mixed_precision.LossScaleOptimizer):
            model = dense()
            optimizer = hvd.DistributedOptimizer(wrap(K.optimizers.SGD(0.1)))
            train(model, share(inputs), share(TARGETS), BATCH // 2, optimizer=optimizer)
            assert model.optimizer is optimizer
            assert int(optimizer.iterations) == STEPS - 1
            assert float(optimizer.dynamic_scale) == 2**14
            result = gathered(state(model))
            assert (result == result[0]).all()
            assert np.isfinite(result).all()
    finally:
        K.mixed_precision.set_global_policy("float32")


def case_two_optimizers():
    """Both are in flight in one step; rank 0 has wrapped one more, which it does not use."""
    if hvd.rank() == 0:
        hvd.DistributedOptimizer(K.optimizers.SGD(1.0), name="pair")
    pair = [hvd.DistributedOptimizer(K.optimizers.SGD(1.0), name="pair") for _ in range(2)]
    variables = [tf.Variable(0.0), tf.Variable(0.0)]
    for optimizer, variable in zip(pair, variables, strict=True):
        optimizer.build([variable])

    @tf.function
    def step(grad):
        for optimizer, variable in zip(pair, variables, strict=True):
            optimizer.apply([grad], [variable])
            grad *= 10

    for _ in range(5):
        step(tf.constant(1.0 + hvd.rank()))
    np.testing.assert_allclose(variables, [-7.5, -75])
    names = [each.name for each in step.get_concrete_function(tf.TensorSpec([])).graph.get_operations()
             if "Horovod" in each.name and "Allreduce" in each.type]
    assert names == ["HorovodAllreduce_pair_0", "HorovodAllreduce_pair_1_0"], names


def case_one_model_more():
    """Rank 0 builds a model for itself, so Keras names its later layers otherwise; the broadcast still pairs them."""
    if hvd.rank() == 0:
        dense()
    K.utils.set_random_seed(1 + hvd.rank())
    model = K.Sequential([K.layers.Input((4,)), K.layers.Dropout(0.5), K.layers.Dense(3)])
    model.compile(hvd.DistributedOptimizer(K.optimizers.Adam(0.01)), "mse", jit_compile=False)
    expected = hvd.broadcast(model.get_weights()[0], 0).numpy()

    class First(K.callbacks.Callback):
        def on_train_begin(self, logs=None):
            np.testing.assert_array_equal(self.model.get_weights()[0], expected)

    model.fit(share(NUMBERS), share(TARGETS), BATCH // 2, verbose=0,
              callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), First()])
    result = gathered(model.weights)
    assert (result == result[0]).all()
    seeds = gathered([model.layers[0].seed_generator.state])
    assert (seeds[0] != seeds[1]).any(), "dropout must differ between workers"


def case_auto_jit():
    """Where TensorFlow lists a GPU, Keras takes "auto" for True."""
    listed = tf.config.list_physical_devices
    tf.config.list_physical_devices = lambda *kind: [*listed(*kind), tf.config.PhysicalDevice("gpu", "GPU")]
    try:
        model = dense()
        model.compile(hvd.DistributedOptimizer(K.optimizers.SGD(0.1)), "mse")
        assert model.jit_compile
        model.fit(NUMBERS, TARGETS, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
        assert not model.jit_compile
    finally:
        tf.config.list_physical_devices = listed


def case_warmup_with_momentum():
    """The learning rate of each step, and the weight that Goyal's update gives for a constant gradient of 1."""
    model = K.Sequential([K.layers.Input((1,)), K.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(hvd.DistributedOptimizer(K.optimizers.SGD(0.4, 0.9)), lambda _, output: output, jit_compile=False)
    used = []

    class Record(K.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            used.append(float(self.model.optimizer.learning_rate))

    warmup = hvd.callbacks.LearningRateWarmupCallback(0.4, 2)
    ones = np.ones((12, 1), "f")
    logs = model.fit(ones, ones, 4, epochs=3, verbose=0, callbacks=[warmup, Record()]).history
    size = hvd.size()
    expected = [0.4 / size * ((step + 1) / 3 * (size - 1) / 2 + 1) for step in range(6)] + [0.4] * 3
    np.testing.assert_allclose(used, expected, 1e-5)
    np.testing.assert_allclose(logs["lr"], expected[2::3], 1e-5)
    weight = velocity = 0.0
    for before, now in zip([0.4, *expected], expected, strict=False):
        velocity = 0.9 * velocity * now / before - now
        weight += velocity
    np.testing.assert_allclose(model.get_weights()[0], weight, 1e-4)


def case_schedule_callbacks():
    initial = 0.1 * hvd.size()
    model = dense()
    model.compile(hvd.DistributedOptimizer(K.optimizers.Adam()), "mse", jit_compile=False)
    scheduled = hvd.callbacks.LearningRateScheduleCallback
    logs = model.fit(NUMBERS[:20], TARGETS[:20], 4, epochs=6, verbose=0, callbacks=[
        hvd.callbacks.LearningRateWarmupCallback(initial, 3), scheduled(initial, 1e-1, start_epoch=3, end_epoch=5),
        scheduled(initial, lambda epoch: epoch, start_epoch=5)]).history
    steps = [1 / hvd.size() * (epoch * (hvd.size() - 1) / 3 + 1) for epoch in (1, 2, 3)]
    np.testing.assert_allclose(logs["lr"], np.array([*steps, 1, 0.1, 5]) * initial, 1e-5)


def case_save_and_load():
    """A file that one worker writes holds nothing of Horovod, and training goes on from it as if uninterrupted."""
    folder = Path(hvd.hvd.broadcast_object(tempfile.mkdtemp()))

    @K.utils.register_keras_serializable("case")
    class Own(K.optimizers.SGD):
        pass

    def fit(model, half):
        data = [np.split(share(each), 2)[half] for each in (NUMBERS, TARGETS)]
        model.fit(*data, BATCH // 2, shuffle=False, verbose=0)

    optimizer, model = Own(0.1, 0.9), dense()
    model.compile(hvd.DistributedOptimizer(optimizer), "mse", jit_compile=False)
    fit(model, 0)
    if hvd.rank() == 0:
        model.save(folder / "model.keras")
    hvd.allreduce(0.0)
    plain, loaded = K.models.load_model(folder / "model.keras"), hvd.load_model(folder / "model.keras")
    assert type(plain.optimizer) is type(loaded.optimizer) is Own
    assert not hasattr(plain.optimizer, "horovod")
    assert plain.optimizer.get_config() == optimizer.get_config() == loaded.optimizer.get_config()
    for each in (plain, loaded):
        np.testing.assert_array_equal(gathered(state(each)), gathered(state(model)))
    for each in (model, loaded):
        fit(each, 1)
    np.testing.assert_array_equal(gathered(state(loaded)), gathered(state(model)))


def case_loaded_on_one_worker():
    """Rank 0 continues a saved model, the others have a new one: the broadcast gives them its state."""
    model = dense()
    model.compile(hvd.DistributedOptimizer(K.optimizers.SGD(0.1, 0.9)), "mse", jit_compile=False)
    if hvd.rank() == 0:
        file = Path(tempfile.mkdtemp()) / "model.keras"
        model.optimizer.build(model.trainable_variables)
        model.optimizer.iterations.assign(7)
        model.save(file)
        model = hvd.load_model(file)
    model.fit(share(NUMBERS), share(TARGETS), BATCH // 2, shuffle=False, verbose=0,
              callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    result = gathered(state(model))
    assert (result == result[0]).all()
    assert int(model.optimizer.iterations) == 7 + STEPS


def case_elastic_state():
    model = dense()
    model.set_weights([np.full(each.shape, 1.0 + hvd.rank()) for each in model.weights])
    optimizer = hvd.DistributedOptimizer(K.optimizers.Adam(0.01), backward_passes_per_step=2)
    state = hvd.elastic.KerasState(model, optimizer, batch=20 + hvd.rank(), epoch=10 + hvd.rank())
    optimizer.iterations.assign(7 + hvd.rank())
    if hvd.rank() == 0:
        optimizer.apply([tf.ones(each.shape) for each in model.weights], model.weights)
    state.sync()
    assert [state.batch, state.epoch, int(optimizer.iterations), int(optimizer.horovod.counter)] == [20, 10, 7, 0]
    for value in model.get_weights():
        np.testing.assert_array_equal(value, 1)
    for commit in (False, True):
        model.set_weights([np.full(each.shape, 5.0) for each in model.weights])
        state.batch, state.epoch = 21, 11
        if commit:
            state.commit()
        state.restore()
        assert [state.batch, state.epoch] == ([21, 11] if commit else [20, 10])
        for value in model.get_weights():
            np.testing.assert_array_equal(value, 5 if commit else 1)


def case_elastic_callbacks():
    """Two epochs of six batches, of which three are done: the first takes three."""
    model = dense()
    model.compile(hvd.DistributedOptimizer(K.optimizers.SGD(0.1)), "mse", jit_compile=False)
    state = hvd.elastic.KerasState(model, batch=3, epoch=4, commits=0)
    seen = []

    class Commit(hvd.elastic.CommitStateCallback):
        def commit(self):
            state.commits += 1
            super().commit()

    class Record(K.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append((state.epoch, state.batch))

    model.fit(NUMBERS, TARGETS, BATCH, epochs=2, verbose=0, callbacks=[
        hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.UpdateEpochStateCallback(state), Commit(state, 2),
        Record()])
    assert seen == [(4, batch) for batch in (4, 5, 6)] + [(5, batch) for batch in range(1, 7)], seen
    assert (state.epoch, state.batch, state.commits) == (6, 0, 6)


def refused(message: str, call) -> None:
    """Check that a call raises on every worker, so that none waits for another."""
    with pytest.raises((RuntimeError, ValueError), match=message):
        call()


def first(*more) -> list:
    return [hvd.callbacks.BroadcastGlobalVariablesCallback(0), *more]


def compiled(network=None, optimizer=None, loss="mse", **arguments) -> K.Model:
    network = network or dense()
    optimizer = hvd.DistributedOptimizer(optimizer or K.optimizers.SGD(0.1, 0.9))
    network.compile(optimizer, loss, jit_compile=False, **arguments)
    return network


def fit(model, callbacks, **arguments):
    arguments = {"x": share(NUMBERS), "y": share(TARGETS), "batch_size": BATCH // 2, "shuffle": False} | arguments
    return model.fit(verbose=0, callbacks=callbacks, **arguments).history


class OnOneRank(K.callbacks.Callback):
    """Does something to the model on the last rank alone, at the end of epoch 1."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def on_epoch_end(self, epoch, logs=None):
        if hvd.rank() == hvd.size() - 1 and epoch == 0:
            self.change(self.model)


def case_an_optimizer_that_exchanges_nothing():
    """Wherever the wrapper was lost, or never there."""
    file = Path(tempfile.mkdtemp()) / "model.keras"
    model = compiled()
    fit(model, first())
    model.save(file)
    again, copy, plain = dense(), dense(), dense()
    again.compile(type(model.optimizer).from_config(model.optimizer.get_config()), "mse")
    copy.compile_from_config(model.get_compile_config())
    plain.compile("adam", "mse")
    for each in (K.models.load_model(file), again, copy, plain):
        for callback in (hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(),
                         hvd.callbacks.LearningRateWarmupCallback(0.1)):
            refused("exchanges no gradients.*hvd.DistributedOptimizer", lambda: fit(each, [callback]))  # noqa: B023
    fit(hvd.load_model(file), first())
    unbuilt = K.Sequential([K.layers.Dense(3)])
    unbuilt.compile("adam", "mse")
    refused("exchanges no gradients", lambda: fit(unbuilt, first()))


def case_a_model_that_one_worker_has_built():
    K.utils.set_random_seed(hvd.rank())
    model = K.Sequential([K.layers.Dense(3)])
    if hvd.rank() == 0:
        model.build((None, 4))
    fit(compiled(model), first(), epochs=2)
    result = gathered(state(model))
    assert (result == result[0]).all()


def case_callbacks_used_again():
    """For each fold a new model, and a second fit of a model whose weights rank 0 alone has loaded."""
    callbacks = first(hvd.callbacks.MetricAverageCallback())
    for fold in range(2):
        model = compiled()
        model.set_weights([np.full(each.shape, fold + hvd.rank(), "f") for each in model.weights])
        for _ in range(2):
            fit(model, callbacks, epochs=2)
            result = gathered(state(model))
            assert (result == result[0]).all()
            if hvd.rank() == 0:
                model.set_weights([each + 1 for each in model.get_weights()])


def case_a_worker_drifts_apart():
    """By hand, on one rank: weights, learning rate, momentum, a frozen layer; weights before a fit."""
    def frozen():
        network = dense()
        network.layers[0].trainable = False
        return network

    def add_to(layer):
        return lambda model: model.layers[layer].set_weights([each + 1 for each in model.layers[layer].get_weights()])

    for make, change, name in (
            (dense, add_to(1), "dense_1"), (frozen, add_to(0), "dense"),
            (dense, lambda model: setattr(model.optimizer, "learning_rate", 0.5), "learning_rate"),
            (dense, lambda model: model.optimizer.momentums[0].assign_add(model.weights[0]), "momentum")):
        for epochs, place in ((1, "the end of the training"), (2, "the start of epoch 2")):
            model = compiled(make())
            refused(rf"differ in \S*{name}\S* at {place}",
                    lambda: fit(model, first(OnOneRank(change)), epochs=epochs))  # noqa: B023
    model = compiled()
    model.set_weights([each + hvd.rank() for each in model.get_weights()])
    refused("kernel at the start of epoch 1.*BroadcastGlobalVariablesCallback", lambda: fit(
        model, [hvd.callbacks.MetricAverageCallback()]))


def case_workers_at_different_places():
    """What one rank alone does or has: it waits for nobody, and nobody for it."""
    one = hvd.rank() == 0
    average = hvd.callbacks.MetricAverageCallback()
    validation = {"validation_data": (NUMBERS[:8], TARGETS[:8])} if one else {}
    stop = [K.callbacks.EarlyStopping("loss", patience=0, min_delta=100)] if one else []
    refused("rank 0 is at the end of the training, rank 1 at the start of epoch 3.*EarlyStopping",
            lambda: fit(compiled(), first(average, *stop), epochs=4))
    refused("the metrics: rank 0 has loss, val_loss, rank 1 loss; .*validation data",
            lambda: fit(compiled(), first(average), **validation))
    fit(compiled(), first(), **validation)  # No value of the other worker is needed.
    refused("rank 0 is at the metrics", lambda: fit(compiled(), first(*[average] * one)))
    refused("rank 0 is at the start of fit, rank 1 at its first step", lambda: fit(compiled(), first() if one else []))
    refused("the number of steps per epoch: rank 0 has 6, rank 1 5",
            lambda: fit(compiled(), first(), steps_per_epoch=6 - hvd.rank()))
    refused("the number of epochs", lambda: fit(compiled(), first(), epochs=2 + hvd.rank()))
    refused("the optimizer's momentum: rank 0 has 0.5, rank 1 0.6",
            lambda: fit(compiled(optimizer=K.optimizers.SGD(0.1, 0.5 + 0.1 * hvd.rank())), first()))
    refused("the optimizer: rank 0 has Adam",
            lambda: fit(compiled(optimizer=K.optimizers.Adam() if one else None), first()))
    refused("the shapes of the weights", lambda: fit(compiled(
        K.Sequential([K.layers.Input((4,)), K.layers.Dense(3 + hvd.rank(), "relu"), K.layers.Dense(3)])), first()))


class TwoHeads(K.Model):
    """Each worker trains the shared layer and its own head."""

    def __init__(self, sizes=(3, 3)):
        super().__init__()
        self.shared, self.heads = K.layers.Dense(5), [K.layers.Dense(size) for size in sizes]

    def build(self, shape):
        self.shared.build(shape)
        for head in self.heads:
            head.build((None, 5))
        self.built = True

    def call(self, inputs):
        return tf.reduce_sum(self.heads[hvd.rank()](self.shared(inputs)), axis=1)


def case_a_gradient_that_one_worker_has_not():
    """In `fit`, eager or not, with heads of equal and of different shapes; in an own loop, in a later step."""
    for sizes in ((3, 3), (3, 5)):
        for eager in (False, True):
            K.utils.set_random_seed(1)
            refused("the gradient of .*rank 0 has .*missing_as_zeros", lambda: fit(
                compiled(TwoHeads(sizes), run_eagerly=eager), first(), y=share(TARGETS)[:, 0]))  # noqa: B023
    model = TwoHeads()
    model.build((None, 4))
    model.compile(hvd.DistributedOptimizer(K.optimizers.SGD(0.1), missing_as_zeros=True), "mse", jit_compile=False)
    before = [each.get_weights()[0] for each in model.heads]
    fit(model, first(), y=share(TARGETS)[:, 0])
    result = gathered(state(model))
    assert (result == result[0]).all()
    assert all((old != head.get_weights()[0]).any() for old, head in zip(before, model.heads, strict=True))
    table = tf.Variable(tf.zeros([3, 1]))
    rows = tf.IndexedSlices(tf.constant([[2.0]]), tf.constant([1]), tf.constant([3, 1]))
    optimizer = hvd.DistributedOptimizer(K.optimizers.SGD(1.0), missing_as_zeros=True)
    optimizer.apply([None if hvd.rank() else rows], [table])
    np.testing.assert_allclose(np.ravel(table), [0, -1, 0])
    variables = [tf.Variable(0.0), tf.Variable(0.0)]
    optimizer = hvd.DistributedOptimizer(K.optimizers.SGD(1.0))
    optimizer.apply([tf.constant(1.0), tf.constant(1.0)], variables)
    refused("is none here and was dense", lambda: optimizer.apply([tf.constant(1.0), None], variables))
    optimizer.apply([tf.constant(1.0)], variables[:1])  # All workers apply only this one.
    np.testing.assert_allclose(variables, [-2, -1])


def case_metrics_are_those_of_all_samples():
    """Rank 0 has 30 samples to train and 4 to validate, rank 1 has 10 and 12, with other weights and classes."""
    labels = (NUMBERS[:, :1] + 0.3 * TARGETS[:, :1] > 0).astype("f")
    weights = np.where(np.arange(len(labels)) < 30, 1, 0.01).astype("f")
    metrics = K.metrics
    trained, validated = [(slice(0, 30), slice(0, 4)), (slice(30, 40), slice(4, 16))][hvd.rank()]
    K.utils.set_random_seed(3)
    model = compiled(K.Sequential([K.layers.Input((4,)), K.layers.Dense(1, "sigmoid")]), K.optimizers.SGD(0.0),
                     weighted_metrics=[
        "accuracy", "mae", metrics.AUC(), metrics.Precision(), metrics.Recall(), metrics.F1Score(threshold=0.5),
        metrics.RootMeanSquaredError(), metrics.R2Score(), metrics.MeanIoU(2, name="iou"), metrics.TruePositives(),
        metrics.SensitivityAtSpecificity(0.5), metrics.CosineSimilarity()])
    data = NUMBERS, labels, weights
    expected = [model.evaluate(*(each[:count] for each in data[:2]), sample_weight=weights[:count], verbose=0,
                               return_dict=True) for count in (40, 16)]
    for validation in (True, False):
        logs = fit(model, [hvd.callbacks.MetricAverageCallback()], x=NUMBERS[trained], y=labels[trained],
                   sample_weight=weights[trained], batch_size=[10, 4][hvd.rank()],
                   validation_data=tuple(each[validated] for each in data) if validation else None)
        assert len(logs) == (1 + validation) * len(expected[0])
        for name, values in logs.items():
            correct = expected[name.startswith("val_")][name.removeprefix("val_")]
            np.testing.assert_allclose(values[0], correct, 1e-4, 1e-6, err_msg=name)


def case_losses_of_several_outputs():
    """Keras counts each batch as 1 there, whatever its size."""
    inputs = K.layers.Input((4,))
    model = K.Model(inputs, {name: K.layers.Dense(3, name=name)(inputs) for name in "ab"})
    targets = {"a": TARGETS, "b": 2 * TARGETS}
    compiled(model, K.optimizers.SGD(0.0), {"a": "mse", "b": "mae"})
    labels = {name: each[:9] for name, each in targets.items()}
    expected = model.evaluate(NUMBERS[:9], labels, verbose=0, return_dict=True)
    mine = [slice(0, 6), slice(6, 9)][hvd.rank()]
    data = NUMBERS[mine], {name: each[mine] for name, each in targets.items()}
    logs = fit(model, first(hvd.callbacks.MetricAverageCallback()), x=data[0], y=data[1], validation_data=data)
    for name, correct in expected.items():
        np.testing.assert_allclose([logs[name][0], logs[f"val_{name}"][0]], correct, 1e-5, err_msg=name)


class Largest(K.metrics.Metric):
    """The largest error: a state that cannot be summed."""

    def __init__(self):
        super().__init__(name="largest")
        self.value = self.add_variable((), "zeros", name="value")

    def update_state(self, labels, outputs, sample_weight=None):
        self.value.assign(tf.maximum(self.value, tf.reduce_max(abs(labels - outputs))))

    def result(self):
        return self.value

    def reset_state(self):
        self.value.assign(-1.0)


def case_values_that_cannot_be_summed_are_named():
    """Those of an own train step, which keep their shape, and a metric whose state is no sum."""
    class Own(K.Model):
        def train_step(self, data):
            return {"loss": tf.constant(1.0 + hvd.rank()), "per_class": tf.constant([0.0, 4.0]) * hvd.rank()}

    model = Own()
    model.compile(loss="mse", jit_compile=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        logs = fit(model, [hvd.callbacks.MetricAverageCallback()])
        own = fit(compiled(metrics=[Largest()]), first(hvd.callbacks.MetricAverageCallback()))
    assert logs["loss"] == [(1 + hvd.size()) / 2], logs
    np.testing.assert_allclose(logs["per_class"][0], [0, 2 * (hvd.size() - 1)])
    if hvd.rank() == 0:
        named = {str(each.message).partition(" is the mean of the workers")[0] for each in caught}
        assert {"loss", "per_class", "largest"} <= named, named
    assert own["largest"][0] > 0


class Batches(K.utils.PyDataset):
    """Batches of these rows."""

    def __init__(self, *batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return NUMBERS[self.batches[index]], TARGETS[self.batches[index]]


ROWS = {  # Of each rank, batch by batch; together they are batches of six or fewer.
    "the last": (([0, 1, 2], [6, 7, 8], [12, 13, 14]), ([3, 4, 5], [9, 10, 11], [15])),
    "all": (([0, 1, 2, 3], [6, 7, 8, 9], [12, 13, 14, 15]), ([4, 5], [10, 11], [16, 17])),
    "the second": (([0, 1, 2], [6, 7, 8], [12, 13, 14]), ([3, 4, 5], [9], [15, 16, 17])),
}


def case_unequal_batches():
    """Each counts by its samples; a loss that is a sum needs no weights, also after another `compile`."""
    total = K.losses.MeanSquaredError(reduction="sum")
    for rows in ROWS.values():
        whole = Batches(*([*mine, *other] for mine, other in zip(*rows, strict=True)))
        together, alone = dense(), dense()
        for loss, factor in (("mse", 1), (total, 1 / hvd.size())):
            compiled(together, K.optimizers.SGD(0.1), loss)
            alone.compile(K.optimizers.SGD(0.1 * factor), loss, jit_compile=False)
            alone.fit(whole, epochs=2, shuffle=False, verbose=0)
            together.fit(Batches(*rows[hvd.rank()]), epochs=2, shuffle=False, verbose=0, callbacks=first())
            for value, expected in zip(together.get_weights(), alone.get_weights(), strict=True):
                np.testing.assert_allclose(value, expected, 1e-4, 1e-5)


def case_unequal_passes():
    """The passes of an update are one batch: of the samples of all workers."""
    rows, model, alone = ROWS["all"], dense(), dense()
    for average in (True, False):
        optimizer = hvd.DistributedOptimizer(K.optimizers.SGD(0.1), backward_passes_per_step=3,
                                             average_aggregated_gradients=average)
        model.compile(optimizer, "mse", jit_compile=False)
        model.fit(Batches(*rows[hvd.rank()]), shuffle=False, verbose=0, callbacks=first())
        alone.compile(K.optimizers.SGD(0.1 if average else 0.3), "mse", jit_compile=False)
        alone.fit(NUMBERS[:18], TARGETS[:18], 18, verbose=0)
        for value, expected in zip(model.get_weights(), alone.get_weights(), strict=True):
            np.testing.assert_allclose(value, expected, 1e-4, 1e-5)


class Own(K.Model):
    """A train step that is Keras' own; nobody knows that."""

    def train_step(self, data):
        return super().train_step(data)


def case_what_cannot_be_weighted_is_said():
    """Unequal batches under an own train step, and masks."""
    inputs = K.layers.Input((4,))
    words = K.Sequential([K.layers.Input((WORDS,)), K.layers.Embedding(9, 2, mask_zero=True), K.layers.LSTM(3)])
    for model, x, message in ((Own(inputs, K.layers.Dense(3)(inputs)), NUMBERS, r"\[7.0, 5.0\] samples"),
                              (words, SENTENCES, "masks steps")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit(compiled(model), first(), x=x[:7 - 2 * hvd.rank()], y=TARGETS[:7 - 2 * hvd.rank()], batch_size=4)
        assert hvd.rank() or [each for each in caught if re.search(message, str(each.message))], message


def case_callbacks_of_keras():
    """ReduceLROnPlateau, EarlyStopping and ModelCheckpoint decide as with one worker."""
    file = Path(hvd.hvd.broadcast_object(tempfile.mkdtemp())) / "best.keras"

    def callbacks(path):
        save = [K.callbacks.ModelCheckpoint(path, save_best_only=True)] if hvd.rank() == 0 or path != file else []
        return [K.callbacks.ReduceLROnPlateau(factor=0.5, patience=1, min_delta=0.05),
                K.callbacks.EarlyStopping(patience=3, min_delta=0.05), *save]

    together, alone = compiled(), dense()
    alone.compile(K.optimizers.SGD(0.1, 0.9), "mse", jit_compile=False)
    path = Path(tempfile.mkdtemp()) / "best.keras"
    expected = alone.fit(NUMBERS, TARGETS, BATCH, 20, 0, callbacks(path), shuffle=False,
                         validation_data=(NUMBERS[:10], TARGETS[:10])).history
    validated = slice(0, 4) if hvd.rank() == 0 else slice(4, 10)
    logs = fit(together, first(hvd.callbacks.MetricAverageCallback(), *callbacks(file)), epochs=20,
               validation_data=(NUMBERS[validated], TARGETS[validated]))
    assert logs.keys() == expected.keys()
    assert 4 < len(logs["loss"]) < 20
    for name, values in logs.items():
        np.testing.assert_allclose(values, expected[name], 1e-3, err_msg=name)
    hvd.allreduce(0.0)
    saved, wanted = (K.models.load_model(each).get_weights() for each in (file, path))
    for value, correct in zip(saved, wanted, strict=True):
        np.testing.assert_allclose(value, correct, 1e-3, 1e-5)


def case_warmup_ends_at_the_learning_rate():
    """Also within an epoch, in calls of several steps, and where another callback lowers the rate afterwards."""
    for epochs, steps, total in ((1, 1, 2), (1, 6, 1), (1, 4, 2), (0.5, 1, 1), (0.5, 6, 2), (1.5, 1, 3), (2, 6, 3)):
        rates = []
        record = K.callbacks.LambdaCallback(
            on_train_batch_begin=lambda batch, logs: rates.append(float(model.optimizer.learning_rate)))  # noqa: B023
        model = compiled(steps_per_execution=steps)
        warmup = hvd.callbacks.LearningRateWarmupCallback(0.4, epochs)
        fit(model, first(warmup, record), epochs=total)
        assert max(rates) <= np.float32(0.4), (epochs, steps, rates)
        assert float(model.optimizer.learning_rate) == np.float32(0.4), (epochs, steps, rates)
        assert rates == sorted(rates)
    model = compiled()
    lower = K.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: setattr(model.optimizer, "learning_rate", 0.1))
    fit(model, first(hvd.callbacks.LearningRateWarmupCallback(0.4, 1), lower), epochs=3)
    assert float(model.optimizer.learning_rate) == np.float32(0.1)


def case_a_saved_model_goes_on_as_it_was():
    """With its passes, operation and schedule, through either loader."""
    file = Path(tempfile.mkdtemp()) / "model.keras"
    decay = K.optimizers.schedules.PiecewiseConstantDecay([3], [0.1, 0.01])
    for settings in ({"backward_passes_per_step": 2, "average_aggregated_gradients": True}, {"op": hvd.Sum},
                     {"missing_as_zeros": True, "sparse_as_dense": True}):
        models = []
        for _ in range(2):
            model = dense()
            model.compile(hvd.DistributedOptimizer(K.optimizers.Adam(decay), **settings), "mse", jit_compile=False)
            fit(model, first())
            models.append(model)
        models[1].save(file)
        plain = K.models.load_model(file)
        with pytest.raises(ValueError, match="was saved with"):
            hvd.DistributedOptimizer(plain.optimizer)
        plain.optimizer = hvd.DistributedOptimizer(plain.optimizer, **settings)
        models[1:] = [hvd.load_model(file), plain]
        for model in models:
            fit(model, first())
            np.testing.assert_array_equal(np.ravel(gathered(state(model))), np.ravel(gathered(state(models[0]))))


def case_layers_that_keep_more_than_weights():
    """Copies of variables are renewed by the broadcast; tables that differ, and `synchronized`, are refused."""
    layers = K.layers
    normalize = layers.Normalization()
    normalize.adapt(NUMBERS * (1 + hvd.rank()))
    model = K.Sequential([layers.Input((4,)), normalize, layers.Dense(3)])
    compiled(model)
    for _ in range(2):
        fit(model, first())
        result = gathered([model.predict(NUMBERS, verbose=0)])
        assert (result == result[0]).all()
        normalize.adapt(NUMBERS * (2 + hvd.rank()))
    bins = layers.Discretization(num_bins=4)
    bins.adapt(NUMBERS)
    file = Path(tempfile.mkdtemp()) / "bins.keras"
    compiled(K.Sequential([layers.Input((4,)), bins, layers.Dense(3)])).save(file)
    loaded = hvd.load_model(file)
    fit(loaded, first(K.callbacks.LambdaCallback(on_train_begin=lambda logs: json.dumps(loaded.history.params))))
    np.testing.assert_allclose(loaded.layers[0].bin_boundaries, bins.bin_boundaries)
    inner = K.Sequential([layers.Input((4,)), layers.Dense(4), layers.BatchNormalization()])
    inner.trainable = False
    inner.layers[1].trainable = True
    fit(compiled(K.Sequential([inner, layers.Dense(3)])), first(), epochs=2)  # Its statistics may differ.
    words = layers.StringLookup(output_mode="count")
    words.adapt(["a", "b", "c"][:2 + hvd.rank()])
    refused("the vocabulary", lambda: fit(compiled(K.Sequential([words, layers.Dense(3)])), first(),
                                          x=tf.constant(["a"] * 4), y=np.zeros((4, 3), "f")))
    refused("synchronized=False", lambda: fit(compiled(K.Sequential(
        [layers.Input((4,)), layers.BatchNormalization(synchronized=True), layers.Dense(3)])), first()))
    model = compiled(K.Sequential([layers.Input((4,)), layers.BatchNormalization(), layers.Dense(3)]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, first())
    assert [each for each in caught if "average_statistics" in str(each.message)] or hvd.rank()
    before = gathered(model.non_trainable_weights)
    hvd.average_statistics(model)
    np.testing.assert_allclose(gathered(model.non_trainable_weights), [before.mean(0)] * hvd.size(), 1e-5)


def case_bfloat16():
    K.config.set_dtype_policy("bfloat16")
    try:
        model = compiled(dense(), K.optimizers.SGD(0.1))
        fit(model, first(hvd.callbacks.MetricAverageCallback()))
        assert model.weights[0].dtype == "bfloat16"
        result = gathered([tf.cast(each, tf.float32) for each in model.weights])
        assert (result == result[0]).all()
        table = tf.Variable(tf.zeros([3, 1], tf.bfloat16))
        rows = tf.IndexedSlices(tf.ones([1, 1], tf.bfloat16), tf.constant([hvd.rank()]), tf.constant([3, 1]))
        hvd.DistributedOptimizer(K.optimizers.SGD(1.0)).apply([rows], [table])
        np.testing.assert_array_equal(tf.cast(table, tf.float32), [[-0.5], [-0.5], [0]])
    finally:
        K.config.set_dtype_policy("float32")


def case_numbers():
    """A number of Python, and the mean of integers, are exact."""
    rank, size = hvd.rank(), hvd.size()
    mean = (size - 1) / 2
    for value in (3 + rank, np.int32(3 + rank), tf.constant(3 + rank), [3 + rank]):
        assert np.ravel(hvd.allreduce(value))[0] == 3 + mean, value
    assert float(hvd.allreduce(0.1)) == 0.1
    assert hvd.allreduce(tf.constant(1 + rank), op=hvd.Sum).dtype == tf.int32
    assert hvd.allreduce(np.float32(rank)).dtype == tf.float32
    assert hvd.allgather([0.1]).numpy().tolist() == [0.1] * size
    assert float(hvd.broadcast(0.1 * (1 + rank), 0)) == 0.1
    assert hvd.reducescatter(np.arange(size) + rank).numpy().tolist() == [rank + mean]


def case_process_set():
    """Ranks 0 and 2 average their gradients, rank 1 uses its own."""
    variable = tf.Variable([0.0])
    optimizer = hvd.DistributedOptimizer(K.optimizers.SGD(1.0), process_set=EVEN)
    step = tf.function(lambda grad: optimizer.apply([grad], [variable]))
    step(tf.constant([float(hvd.rank())]))
    table = tf.Variable(tf.zeros([3, 1]))
    rows = tf.IndexedSlices(tf.constant([[2.0]]), tf.constant([hvd.rank()]), tf.constant([3, 1]))
    sparse = hvd.DistributedOptimizer(K.optimizers.SGD(1.0), process_set=EVEN)
    sparse.apply([rows], [table])
    # Ranks 0 and 2 have used two optimizers more of this class than rank 1.
    shared = tf.Variable([0.0])
    of_all = hvd.DistributedOptimizer(K.optimizers.SGD(1.0))
    tf.function(lambda grad: of_all.apply([grad], [shared]))(tf.constant([float(hvd.rank())]))
    assert float(shared[0]) == -1.0
    own = hvd.rank() == 1
    assert float(variable[0]) == -1.0
    assert table.numpy().ravel().tolist() == ([0, -2, 0] if own else [-1, 0, -1])


EVEN = hvd.ProcessSet([0, 2])
chosen, results = sys.argv[1].split(","), Path(sys.argv[2])
hvd.init(process_sets=[EVEN] if "process_set" in chosen else None)
failures = {}
for name in chosen:
    try:
        SAME.get(name, globals().get(f"case_{name}"))()
    except Exception:
        failures[name] = f"rank {hvd.rank()}: {traceback.format_exc()}"
        print(name, failures[name], file=sys.stderr)  # In case the other worker waits for this one.
every = hvd.hvd.allgather_object(failures)
if hvd.rank() == 0:
    results.write_text(json.dumps({name: [each[name] for each in every if name in each] for name in chosen}))
