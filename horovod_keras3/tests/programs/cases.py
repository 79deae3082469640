"""What `horovod_keras3` promises, on two workers; rank 0 writes the failures of each case as JSON.

A case compares with Keras alone: each worker also trains a copy of the model by itself, on the whole batch.
"""

import contextlib
import json
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
AVERAGE, BROADCAST = hvd.callbacks.MetricAverageCallback, hvd.callbacks.BroadcastGlobalVariablesCallback
STEPS, BATCH = 6, 16
random = np.random.default_rng(0)
SENTENCES = random.integers(0, 9, (STEPS * BATCH, 5))
NUMBERS = random.normal(size=(STEPS * BATCH, 4)).astype("f")
TARGETS = random.normal(size=(STEPS * BATCH, 3)).astype("f")


def dense() -> K.Model:
    K.utils.set_random_seed(3)
    return K.Sequential([K.layers.Input((4,)), K.layers.Dense(6, "relu"), K.layers.Dense(3)])


def embedding() -> K.Model:
    K.utils.set_random_seed(3)
    return K.Sequential([K.layers.Input((5,)), K.layers.Embedding(9, 4), K.layers.Flatten(), K.layers.Dense(3)])


def compiled(network=None, optimizer=None, loss="mse", wrapped=(), **arguments) -> K.Model:
    network = network or dense()
    optimizer = hvd.DistributedOptimizer(optimizer or K.optimizers.SGD(0.1, 0.9), **dict(wrapped))
    network.compile(optimizer, loss, jit_compile=False, **arguments)
    return network


def first(*more) -> list:
    return [BROADCAST(0), *more]


def fit(model, callbacks=(), **arguments) -> dict:
    arguments = {"x": share(NUMBERS), "y": share(TARGETS), "batch_size": BATCH // 2, "shuffle": False} | arguments
    return model.fit(verbose=0, callbacks=list(callbacks), **arguments).history


def share(data: np.ndarray, passes: int = 1) -> np.ndarray:
    """Return this worker's half of each batch, pass by pass."""
    split = data.reshape(STEPS, passes, hvd.size(), -1, *data.shape[1:])
    return split[:, :, hvd.rank()].reshape(-1, *data.shape[1:])


def gathered(arrays) -> np.ndarray:
    """Return all workers' arrays, a row per rank."""
    row = np.concatenate([np.ravel(np.asarray(each, np.float64)) for each in arrays])
    return hvd.allgather(row[None]).numpy()


def state(model) -> list:
    return [np.asarray(each) for each in [*model.weights, *model.optimizer.variables]]


def expect_close(mine: list, others: list, rtol: float = 1e-4) -> None:
    for index, (value, expected) in enumerate(zip(mine, others, strict=True)):
        np.testing.assert_allclose(value, expected, rtol, 2e-6, err_msg=f"variable {index}")


def expect_equal(arrays) -> None:
    result = gathered(arrays)
    assert (result == result[0]).all(), "the workers differ"


def refused(message: str, call) -> None:
    """Check that a call raises on every worker, so that none waits for another."""
    with pytest.raises((RuntimeError, ValueError), match=message):
        call()


@contextlib.contextmanager
def warned(*messages: str):
    """Check that rank 0 warns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    texts = " ".join(str(each.message) for each in caught)
    assert hvd.rank() or all(message in texts for message in messages), texts


def same(optimizer, network=dense, passes=1, rtol=1e-4, clipped=False, compiling=(), **wrapped) -> None:
    """Check that the workers together do what one does with the whole batch, and end bit-equal."""
    inputs, reference = NUMBERS if network is dense else SENTENCES, optimizer()
    if clipped:  # Keras alone would clip the parts of a sparse gradient, not its summed rows.
        reference.apply = lambda grads, variables: type(reference).apply(
            reference, list(map(tf.convert_to_tensor, grads)), variables)
    alone = network()
    alone.compile(reference, "mse", jit_compile=False)
    fit(alone, x=inputs, y=TARGETS, batch_size=BATCH)
    wrapped |= {"backward_passes_per_step": passes, "average_aggregated_gradients": True} if passes > 1 else {}
    together = compiled(network(), optimizer(), wrapped=wrapped, **dict(compiling))
    fit(together, x=share(inputs, passes), y=share(TARGETS, passes), batch_size=BATCH // hvd.size() // passes)
    expect_equal(state(together))
    expect_close(*(each.get_weights() if passes > 1 else state(each) for each in (together, alone)), rtol)
    assert int(together.optimizer.iterations) == int(reference.iterations), "updates are counted, not passes"


SAME = {
    "nesterov": (lambda: K.optimizers.SGD(0.1, 0.9, nesterov=True), {}),
    "adamw_clipped": (lambda: K.optimizers.AdamW(0.01, weight_decay=0.1, global_clipnorm=0.5), {}),
    "accumulation_of_keras": (lambda: K.optimizers.Adam(0.01, gradient_accumulation_steps=2), {}),
    "ema": (lambda: K.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2), {}),
    "embedding_clipped": (lambda: K.optimizers.SGD(0.5, clipnorm=0.1), {"network": embedding, "clipped": True}),
    "embedding_as_dense": (lambda: K.optimizers.SGD(0.5, clipnorm=0.1), {"network": embedding, "clipped": True,
                                                                         "sparse_as_dense": True}),
    "eager": (lambda: K.optimizers.Adam(0.01), {"network": embedding, "compiling": {"run_eagerly": True}}),
    "several_steps": (lambda: K.optimizers.Adam(0.01), {"network": embedding,
                                                        "compiling": {"steps_per_execution": 10}}),
    "sum": (lambda: K.optimizers.SGD(0.1), {"compiling": {"loss_weights": 0.5}, "op": hvd.Sum}),
    "fp16_compression": (lambda: K.optimizers.SGD(0.1), {"rtol": 0.02, "compression": hvd.Compression.fp16}),
    "passes_and_schedule": (lambda: K.optimizers.Adam(K.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)),
                            {"passes": 4, "compiling": {"steps_per_execution": 3}}),
    "eager_passes": (lambda: K.optimizers.SGD(0.1, 0.9), {"passes": 2, "compiling": {"run_eagerly": True}}),
}
"""Optimizers, and arguments of `same`: what ends bit-equal, and where one worker with the whole batch ends."""


def case_policies():
    """In step 3 the gradient of one worker's half is infinite: all workers leave the step out; bfloat16."""
    K.mixed_precision.set_global_policy("mixed_float16")
    inputs = NUMBERS.copy()
    inputs[2 * BATCH + BATCH // 2] = 6e4
    for wrap in (lambda each: each, K.mixed_precision.LossScaleOptimizer):
        model = compiled(optimizer=wrap(K.optimizers.SGD(0.1)))
        fit(model, x=share(inputs))
        assert (int(model.optimizer.iterations), float(model.optimizer.dynamic_scale)) == (STEPS - 1, 2**14)
        expect_equal(state(model))
        assert np.isfinite(model.get_weights()[0]).all()
    K.mixed_precision.set_global_policy("bfloat16")
    model = compiled(embedding(), K.optimizers.SGD(0.1))
    fit(model, first(AVERAGE()), x=share(SENTENCES))
    expect_equal([tf.cast(each, tf.float32) for each in model.weights])


def case_two_optimizers():
    """Both are in flight in one step; rank 0 has wrapped one more, which it does not use."""
    pair = [hvd.DistributedOptimizer(K.optimizers.SGD(1.0), name="pair") for _ in range(3 - hvd.rank())][-2:]
    variables = [tf.Variable(0.0), tf.Variable(0.0)]
    for optimizer, variable in zip(pair, variables, strict=True):
        optimizer.build([variable])
    step = tf.function(lambda grad: [optimizer.apply([factor * grad], [variable]) for optimizer, variable, factor in
                                     zip(pair, variables, (1, 10), strict=True)] and None)
    for _ in range(5):
        step(tf.constant(1.0 + hvd.rank()))
    np.testing.assert_allclose(variables, [-7.5, -75])


def case_each_fit_begins_with_the_weights_of_rank_0():
    """One rank has built this model, and one more; the same callbacks serve each fold, also after rank 0 loads."""
    if hvd.rank() == 0:
        dense()
    K.utils.set_random_seed(1 + hvd.rank())
    callbacks = first(AVERAGE())
    for _ in range(2):
        model = K.Sequential([K.layers.Dropout(0.5), K.layers.Dense(3)])
        if hvd.rank() == 0:
            model.build((None, 4))
        compiled(model)
        for _ in range(2):
            fit(model, callbacks, epochs=2)
            expect_equal(state(model))
            if hvd.rank() == 0:
                model.set_weights([each + 1 for each in model.get_weights()])
    seeds = gathered([model.layers[0].seed_generator.state])
    assert (seeds[0] != seeds[1]).any(), "dropout differs between workers"


def case_an_optimizer_that_exchanges_nothing():
    """Wherever the wrapper was lost, or never there."""
    file, model = Path(tempfile.mkdtemp()) / "model.keras", compiled()
    fit(model, first())
    model.save(file)
    loaded, again, copy, unbuilt = K.models.load_model(file), dense(), dense(), K.Sequential([K.layers.Dense(3)])
    again.compile(type(model.optimizer).from_config(model.optimizer.get_config()), "mse")
    copy.compile_from_config(model.get_compile_config())
    unbuilt.compile("adam", "mse")
    for each in (loaded, again, copy, unbuilt):
        refused("exchanges no gradients.*hvd.DistributedOptimizer", lambda: fit(each, [BROADCAST(0)]))  # noqa: B023
        refused("exchanges no gradients", lambda: fit(each, [AVERAGE()]))  # noqa: B023


def case_a_worker_drifts_apart():
    """By hand, on one rank: weights, learning rate, momentum; weights before a fit."""
    end, start = (1, "the end of the training"), (2, "the start of epoch 2")
    for change, name, (epochs, place) in (
            (lambda model: model.layers[1].bias.assign([9, 9, 9]), "bias", end),
            (lambda model: setattr(model.optimizer, "learning_rate", 0.5), "learning_rate", start),
            (lambda model: model.optimizer.momentums[0].assign_add(model.weights[0]), "momentum", start)):
        model = compiled()
        once = K.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: change(model) if hvd.rank() and not epoch else None)  # noqa: B023
        refused(rf"differ in \S*{name}\S* at {place}", lambda: fit(model, first(once), epochs=epochs))  # noqa: B023
    model = compiled()
    model.set_weights([each + hvd.rank() for each in model.get_weights()])
    refused("kernel at the start of epoch 1.*BroadcastGlobalVariablesCallback", lambda: fit(model, [AVERAGE()]))


def case_workers_at_different_places():
    """What one rank alone does or has: it waits for nobody, and nobody for it."""
    rank = hvd.rank()
    momentum = K.optimizers.SGD(0.1, 0.5 + 0.1 * rank)
    validation = {} if rank else {"validation_data": (NUMBERS[:8], TARGETS[:8])}
    stop = [] if rank else [K.callbacks.EarlyStopping("loss", patience=0, min_delta=100)]
    wide = K.Sequential([K.layers.Input((4,)), K.layers.Dense(3 + rank, "relu"), K.layers.Dense(3)])
    for message, callbacks, model, arguments in (
            ("rank 0 is at the end of the training, rank 1 at the start of epoch 3.*EarlyStopping",
             first(AVERAGE(), *stop), None, {"epochs": 4}),
            ("the metrics: rank 0 has loss, val_loss, rank 1 loss; .*validation", first(AVERAGE()), None, validation),
            ("rank 0 is at the start of fit, rank 1 at its first step", [] if rank else first(), None, {}),
            ("the number of steps per epoch: rank 0 has 6, rank 1 5", first(), None, {"steps_per_epoch": 6 - rank}),
            ("the number of epochs", first(), None, {"epochs": 2 + rank}),
            ("the optimizer's momentum: rank 0 has 0.5, rank 1 0.6", first(), compiled(optimizer=momentum), {}),
            ("the shapes of the weights", first(), compiled(wide), {})):
        refused(message, lambda: fit(model or compiled(), callbacks, **arguments))  # noqa: B023 - called at once
    fit(compiled(), first(), **validation)  # No value of the other worker is needed.


def fit_own_head(sizes=(3, 3), wrapped=(), **arguments) -> K.Model:
    """Train a shared layer and this worker's head."""
    K.utils.set_random_seed(1)
    inputs = K.layers.Input((4,))
    shared = K.layers.Dense(5)(inputs)
    model = K.Model(inputs, {name: K.layers.Dense(size, name=name)(shared)
                             for name, size in zip("ab", sizes, strict=True)})
    losses = {name: "mse" if rank == hvd.rank() else None for rank, name in enumerate("ab")}
    compiled(model, None, losses, wrapped, **arguments)
    model.before = model.get_weights()
    fit(model, first(), y={name: share(TARGETS)[:, :size] for name, size in zip("ab", sizes, strict=True)})
    return model


def case_a_gradient_that_one_worker_has_not():
    """In `fit`, eager or not, with heads of equal and of different shapes; in an own loop, in a later step."""
    for sizes, eager in (((3, 3), False), ((3, 3), True), ((3, 2), False)):
        refused("the gradient of .*rank 0 has .*missing_as_zeros",
                lambda: fit_own_head(sizes, run_eagerly=eager))  # noqa: B023
    model = fit_own_head(wrapped={"missing_as_zeros": True})
    expect_equal(state(model))
    assert all((old != new).any() for old, new in zip(model.before, model.get_weights(), strict=True))
    variables = [tf.Variable(0.0), tf.Variable(0.0)]
    optimizer = hvd.DistributedOptimizer(K.optimizers.SGD(1.0))
    optimizer.apply([tf.constant(1.0), tf.constant(1.0)], variables)
    refused("is none here and was dense", lambda: optimizer.apply([tf.constant(1.0), None], variables))


def case_metrics_are_those_of_all_samples():
    """Rank 0 has 30 samples to train and 4 to validate, rank 1 has 10 and 12, with other weights and classes."""
    metrics, labels = K.metrics, (NUMBERS[:, :1] + 0.3 * TARGETS[:, :1] > 0).astype("f")
    data = NUMBERS, labels, np.where(np.arange(len(labels)) < 30, 1, 0.01).astype("f")
    trained, validated = [(slice(0, 30), slice(0, 4)), (slice(30, 40), slice(4, 16))][hvd.rank()]
    K.utils.set_random_seed(3)
    model = compiled(K.Sequential([K.layers.Input((4,)), K.layers.Dense(1, "sigmoid")]), K.optimizers.SGD(0.0),
                     weighted_metrics=[
        "accuracy", "mae", metrics.AUC(), metrics.Precision(), metrics.Recall(), metrics.F1Score(threshold=0.5),
        metrics.RootMeanSquaredError(), metrics.R2Score(), metrics.MeanIoU(2, name="iou"), metrics.TruePositives(),
        metrics.SensitivityAtSpecificity(0.5), metrics.CosineSimilarity()])
    expected = [model.evaluate(*(each[:count] for each in data[:2]), sample_weight=data[2][:count], verbose=0,
                               return_dict=True) for count in (40, 16)]
    x, y, weights = (each[trained] for each in data)
    for more in ({"validation_data": tuple(each[validated] for each in data)}, {}):
        logs = fit(model, [AVERAGE()], x=x, y=y, sample_weight=weights, batch_size=[10, 4][hvd.rank()], **more)
        assert len(logs) == (1 + len(more)) * len(expected[0])
        for name, values in logs.items():
            correct = expected[name.startswith("val_")][name.removeprefix("val_")]
            np.testing.assert_allclose(values[0], correct, 1e-4, 1e-6, err_msg=name)
    inputs = K.layers.Input((4,))  # Keras counts each batch of a loss per output as 1, whatever its size.
    model = K.Model(inputs, {name: K.layers.Dense(3, name=name)(inputs) for name in "ab"})
    compiled(model, K.optimizers.SGD(0.0), {"a": "mse", "b": "mae"})
    expected = model.evaluate(NUMBERS[:9], dict.fromkeys("ab", TARGETS[:9]), verbose=0, return_dict=True)
    mine = [slice(0, 6), slice(6, 9)][hvd.rank()]
    data = NUMBERS[mine], dict.fromkeys("ab", TARGETS[mine])
    logs = fit(model, first(AVERAGE()), x=data[0], y=data[1], validation_data=data)
    for name, correct in expected.items():
        np.testing.assert_allclose([logs[name][0], logs[f"val_{name}"][0]], correct, 1e-5, err_msg=name)


class Lowest(K.metrics.Metric):
    """A state that cannot be summed, as it does not begin at 0."""

    def update_state(self, labels, outputs, sample_weight=None):
        pass

    def result(self):
        return tf.constant(1.0 + hvd.rank())

    def reset_state(self):
        pass


class Own(K.Model):
    """A train step that weighs no samples, and adds a value to the logs."""

    def train_step(self, data):
        return super().train_step(data) | {"per_class": tf.constant([0.0, 4.0]) * hvd.rank()}


def case_what_is_not_done_is_said():
    """The mean of a metric that is no sum, of an own train step's values, and that its batches are not weighted."""
    inputs, mine = K.layers.Input((4,)), slice(7 - 2 * hvd.rank())
    model = compiled(Own(inputs, K.layers.Dense(3)(inputs)), metrics=[Lowest()])
    means = [f"{name} is the mean of the workers' values" for name in ("per_class", "lowest")]
    with warned("[7.0, 5.0] samples", *means):
        logs = fit(model, first(AVERAGE()), x=NUMBERS[mine], y=TARGETS[mine])
    np.testing.assert_allclose(logs["per_class"][0], [0, 2])


def batches(rows):
    """Yield the samples of these rows, batch by batch, for two epochs."""
    for each in [*rows] * 2:
        yield NUMBERS[each], TARGETS[each]


ROWS = {  # Of each rank, batch by batch; together they are batches of six or fewer.
    "the last": (([0, 1, 2], [6, 7, 8], [12, 13, 14]), ([3, 4, 5], [9, 10, 11], [15])),
    "all": (([0, 1, 2, 3], [6, 7, 8, 9], [12, 13, 14, 15]), ([4, 5], [10, 11], [16, 17])),
    "the second": (([0, 1, 2], [6, 7, 8], [12, 13, 14]), ([3, 4, 5], [9], [15, 16, 17])),
}


def case_unequal_batches():
    """Each counts by its samples; a loss that is a sum needs no weights, also after another `compile`; passes."""
    total = K.losses.MeanSquaredError(reduction="sum")
    for rows in ROWS.values():
        whole = [[*mine, *other] for mine, other in zip(*rows, strict=True)]
        together, alone = dense(), dense()
        for loss, factor in (("mse", 1), (total, 1 / hvd.size())):
            compiled(together, K.optimizers.SGD(0.1), loss)
            alone.compile(K.optimizers.SGD(0.1 * factor), loss, jit_compile=False)
            for model, mine, callbacks in ((alone, whole, []), (together, rows[hvd.rank()], first())):
                model.fit(batches(mine), epochs=2, steps_per_epoch=3, verbose=0, callbacks=callbacks)
            expect_close(together.get_weights(), alone.get_weights())
    for average, rate in ((True, 0.1), (False, 0.3)):  # The passes of an update are one batch.
        together, alone = compiled(None, K.optimizers.SGD(0.1), wrapped={
            "backward_passes_per_step": 3, "average_aggregated_gradients": average}), dense()
        together.fit(batches(ROWS["all"][hvd.rank()]), steps_per_epoch=3, verbose=0, callbacks=first())
        alone.compile(K.optimizers.SGD(rate), "mse", jit_compile=False)
        alone.fit(NUMBERS[:18], TARGETS[:18], 18, verbose=0)
        expect_close(together.get_weights(), alone.get_weights())


def case_callbacks_of_keras():
    """ReduceLROnPlateau, EarlyStopping and ModelCheckpoint decide as with one worker."""
    def callbacks(path):
        return [K.callbacks.ReduceLROnPlateau(factor=0.5, patience=1, min_delta=0.05),
                K.callbacks.EarlyStopping(patience=3, min_delta=0.05),
                K.callbacks.ModelCheckpoint(path, save_best_only=True)]

    files = [Path(tempfile.mkdtemp()) / f"{name}.keras" for name in ("ours", "alone")]
    alone, validated = dense(), slice(0, 4) if hvd.rank() == 0 else slice(4, 10)
    alone.compile(K.optimizers.SGD(0.1, 0.9), "mse", jit_compile=False)
    expected = alone.fit(NUMBERS, TARGETS, BATCH, 20, 0, callbacks(files[1]), shuffle=False,
                         validation_data=(NUMBERS[:10], TARGETS[:10])).history
    logs = fit(compiled(), first(AVERAGE(), *callbacks(files[0])), epochs=20,
               validation_data=(NUMBERS[validated], TARGETS[validated]))
    assert logs.keys() == expected.keys()
    assert 4 < len(logs["loss"]) < 20
    for name, values in logs.items():
        np.testing.assert_allclose(values, expected[name], 1e-3, err_msg=name)
    expect_close(*(K.models.load_model(each).get_weights() for each in files), 1e-3)


def case_warmup():
    """It ends at the learning rate, also within an epoch, in calls of several steps, and if others lower it later."""
    lower = K.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: setattr(model.optimizer, "learning_rate", 0.1))
    record = K.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: rates.append(float(model.optimizer.learning_rate)))
    for epochs, steps, total, more in ((1, 1, 2, []), (1, 6, 1, []), (1, 4, 2, []), (0.5, 1, 1, []), (0.5, 6, 2, []),
                                       (1.5, 1, 3, []), (2, 6, 3, []), (1, 1, 3, [lower])):
        rates, model = [], compiled(steps_per_execution=steps)
        fit(model, first(hvd.callbacks.LearningRateWarmupCallback(0.4, epochs), record, *more), epochs=total)
        assert more or rates == sorted(rates)
        assert max(rates) <= np.float32(0.4), (epochs, steps, rates)
        assert float(model.optimizer.learning_rate) == np.float32(0.1 if more else 0.4), (epochs, steps, rates)
    # Goyal's update for a constant gradient of 1.
    network = K.Sequential([K.layers.Input((1,)), K.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model, ones = compiled(network, K.optimizers.SGD(0.4, 0.9), lambda _, output: output), np.ones((12, 1))
    logs = fit(model, first(hvd.callbacks.LearningRateWarmupCallback(0.4, 2)), x=ones, y=ones, batch_size=4, epochs=3)
    expected = [0.2 * ((step + 1) / 6 + 1) for step in range(6)] + [0.4] * 3
    np.testing.assert_allclose(logs["lr"], expected[2::3], 1e-5)
    weight = velocity = 0.0
    for before, now in zip([0.4, *expected], expected, strict=False):
        velocity = 0.9 * velocity * now / before - now
        weight += velocity
    np.testing.assert_allclose(model.get_weights()[0], weight, 1e-4)


OwnAdam = K.utils.register_keras_serializable("case")(type("OwnAdam", (K.optimizers.Adam,), {}))


def case_a_saved_model_goes_on_as_it_was():
    """With its class, passes, operation and schedule, through either loader."""
    file = Path(tempfile.mkdtemp()) / "model.keras"
    decay = K.optimizers.schedules.PiecewiseConstantDecay([3], [0.1, 0.01])
    for settings in ({"backward_passes_per_step": 2, "average_aggregated_gradients": True}, {"op": hvd.Sum}, {}):
        models = [compiled(optimizer=OwnAdam(decay), wrapped=settings) for _ in range(2)]
        for model in models:
            fit(model, first())
        models[1].save(file)
        plain = K.models.load_model(file)
        assert type(plain.optimizer) is OwnAdam
        if settings:
            refused("was saved with", lambda: hvd.DistributedOptimizer(plain.optimizer))  # noqa: B023
        plain.optimizer = hvd.DistributedOptimizer(plain.optimizer, **settings)
        for model in (models[0], hvd.load_model(file), plain):
            fit(model, first())
            np.testing.assert_array_equal(np.ravel(gathered(state(model))), np.ravel(gathered(state(models[0]))))


def case_layers_that_keep_more_than_weights():
    """Copies of variables are renewed by the broadcast; differing tables are refused; statistics can be averaged."""
    layers = K.layers
    normalize, bins = layers.Normalization(), layers.Discretization(num_bins=4)
    normalize.adapt(NUMBERS * (1 + hvd.rank()))
    bins.adapt(NUMBERS)
    model = compiled(K.Sequential([layers.Input((4,)), normalize, bins, layers.Dense(3)]))
    fit(model, first())
    expect_equal([model.predict(NUMBERS, verbose=0)])
    words = layers.StringLookup(output_mode="count")
    words.adapt(["a", "b", "c"][:2 + hvd.rank()])
    refused("the vocabulary", lambda: fit(compiled(K.Sequential([words, layers.Dense(3)])), first(),
                                          x=tf.constant(["a"] * 4), y=np.zeros((4, 3), "f")))
    together, model = (compiled(K.Sequential([layers.Input((4,)), layers.BatchNormalization(synchronized=each),
                                              layers.Dense(3)])) for each in (True, False))
    refused("synchronized=False", lambda: fit(together, first()))
    with warned("average_statistics"):
        fit(model, first())
    before = gathered(model.non_trainable_weights)
    hvd.average_statistics(model)
    np.testing.assert_allclose(gathered(model.non_trainable_weights), [before.mean(0)] * hvd.size(), 1e-5)


def case_numbers():
    """A number of Python, and the mean of integers, are exact."""
    rank = hvd.rank()
    assert all(np.ravel(hvd.allreduce(value))[0] == 3.5 for value in (3 + rank, tf.constant(3 + rank), [3 + rank]))
    assert float(hvd.allreduce(0.1)) == float(hvd.broadcast(0.1 * (1 + rank), 0)) == 0.1
    assert hvd.allreduce(tf.constant(1 + rank), op=hvd.Sum).dtype == tf.int32
    assert hvd.allgather([0.1]).numpy().tolist() == [0.1, 0.1]
    assert hvd.reducescatter(np.arange(2) + rank).numpy().tolist() == [rank + 0.5]


chosen, results = sys.argv[1].split(","), Path(sys.argv[2])
hvd.init()
failures = {}
for name in chosen:
    K.mixed_precision.set_global_policy("float32")
    try:
        same(SAME[name][0], **SAME[name][1]) if name in SAME else globals()[f"case_{name}"]()
    except Exception:
        failures[name] = f"rank {hvd.rank()}: {traceback.format_exc()}"
        print(name, failures[name], file=sys.stderr)  # In case the other worker waits for this one.
every = hvd.hvd.allgather_object(failures)
if hvd.rank() == 0:
    results.write_text(json.dumps({name: [each[name] for each in every if name in each] for name in chosen}))
