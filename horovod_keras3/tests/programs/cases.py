"""What `horovod_keras3` promises, on two workers or three; rank 0 writes the failures of each case as JSON.

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
SIZE_OF_VOCABULARY, WORDS, STEPS, BATCH = 9, 5, 6, 16
random = np.random.default_rng(0)
SENTENCES = random.integers(0, SIZE_OF_VOCABULARY, (STEPS * BATCH, WORDS))
NUMBERS = random.normal(size=(STEPS * BATCH, 4)).astype("f")
TARGETS = random.normal(size=(STEPS * BATCH, 3)).astype("f")


def dense() -> K.Model:
    K.utils.set_random_seed(3)
    return K.Sequential([K.layers.Input((4,)), K.layers.Dense(6, "relu"), K.layers.Dense(3)])


def embedding() -> K.Model:
    K.utils.set_random_seed(3)
    return K.Sequential([K.layers.Input((WORDS,), dtype="int32"), K.layers.Embedding(SIZE_OF_VOCABULARY, 4),
                         K.layers.Flatten(), K.layers.Dense(3)])


def gathered(arrays) -> np.ndarray:
    """Return all workers' arrays, a row per rank."""
    row = np.concatenate([np.ravel(np.asarray(each, np.float64)) for each in arrays])
    return hvd.allgather(row[None]).numpy()


def state(model) -> list:
    return [np.asarray(each) for each in [*model.weights, *model.optimizer.variables]]


def expect_close(mine: list, others: list, rtol: float = 1e-4) -> None:
    for index, (value, expected) in enumerate(zip(mine, others, strict=True)):
        np.testing.assert_allclose(value, expected, rtol, 2e-6, err_msg=f"variable {index}")


def expect_equal(model) -> None:
    result = gathered(state(model))
    assert (result == result[0]).all(), "the workers differ"


def share(data: np.ndarray, passes: int = 1) -> np.ndarray:
    """Return this worker's half of each batch, pass by pass."""
    split = data.reshape(STEPS, passes, hvd.size(), -1, *data.shape[1:])
    return split[:, :, hvd.rank()].reshape(-1, *data.shape[1:])


def train(model, inputs, targets, batch_size, **compiled) -> None:
    model.compile(loss="mse", jit_compile=False, **compiled)
    model.fit(inputs, targets, batch_size=batch_size, shuffle=False, verbose=0)


def same(optimizer, network=dense, *, passes=1, rtol=1e-4, optimizer_state=True, compiled=None, clipped=False,
         **wrapped) -> None:
    """Check that the workers together do what one does with the whole batch, and end bit-equal.

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
    expect_equal(together)
    if optimizer_state:
        expect_close(state(together), state(alone), rtol)
    expect_close(together.get_weights(), alone.get_weights(), rtol)
    assert int(together.optimizer.iterations) == int(alone.optimizer.iterations), "updates are counted, not passes"


def schedule(rate: float) -> K.optimizers.schedules.LearningRateSchedule:
    return K.optimizers.schedules.ExponentialDecay(rate, 2, 0.5)


SAME = {
    "momentum": lambda: same(lambda: K.optimizers.SGD(0.1, 0.9)),
    "nesterov": lambda: same(lambda: K.optimizers.SGD(0.1, 0.9, nesterov=True)),
    "adamw_clipped": lambda: same(lambda: K.optimizers.AdamW(0.01, weight_decay=0.1, global_clipnorm=0.5)),
    "accumulation_of_keras": lambda: same(lambda: K.optimizers.Adam(0.01, gradient_accumulation_steps=2)),
    "ema": lambda: same(lambda: K.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2)),
    "schedule": lambda: same(lambda: K.optimizers.SGD(schedule(0.2))),
    "embedding": lambda: same(lambda: K.optimizers.Adam(0.01), embedding),
    "embedding_clipped": lambda: same(lambda: K.optimizers.SGD(0.5, clipnorm=0.1), embedding, clipped=True),
    "embedding_as_dense_clipped": lambda: same(lambda: K.optimizers.SGD(0.5, clipnorm=0.1), embedding, clipped=True,
                                               sparse_as_dense=True),
    "eager": lambda: same(lambda: K.optimizers.Adam(0.01), embedding, compiled={"run_eagerly": True}),
    "several_steps": lambda: same(lambda: K.optimizers.Adam(0.01), embedding, compiled={"steps_per_execution": 10}),
    "groups": lambda: same(lambda: K.optimizers.SGD(0.1), groups=2, gradient_predivide_factor=4.0),
    "sum": lambda: same(lambda: K.optimizers.SGD(0.1), compiled={"loss_weights": 0.5}, op=hvd.Sum),
    "fp16_compression": lambda: same(lambda: K.optimizers.SGD(0.1), rtol=0.02, compression=hvd.Compression.fp16),
    "passes": lambda: same(lambda: K.optimizers.Adam(schedule(0.01)), passes=4, optimizer_state=False,
                           compiled={"steps_per_execution": 3}),
    "eager_passes": lambda: same(lambda: K.optimizers.SGD(0.1, 0.9), passes=2, optimizer_state=False,
                                 compiled={"run_eagerly": True}),
}
"""What ends bit-equal on all workers, and where one worker with the whole batch ends."""


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
            assert (int(optimizer.iterations), float(optimizer.dynamic_scale)) == (STEPS - 1, 2**14)
            expect_equal(model)
            assert np.isfinite(model.get_weights()[0]).all()
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


def case_one_model_more():
    """Rank 0 builds a model for itself, so Keras names its later layers otherwise; the broadcast still pairs them."""
    if hvd.rank() == 0:
        dense()
    K.utils.set_random_seed(1 + hvd.rank())
    model = compiled(K.Sequential([K.layers.Input((4,)), K.layers.Dropout(0.5), K.layers.Dense(3)]))
    fit(model, first())
    result = gathered(model.weights)
    assert (result == result[0]).all()
    seeds = gathered([model.layers[0].seed_generator.state])
    assert (seeds[0] != seeds[1]).any(), "dropout must differ between workers"


def case_warmup_with_momentum():
    """The learning rate of each epoch, and the weight that Goyal's update gives for a constant gradient of 1."""
    network = K.Sequential([K.layers.Input((1,)), K.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model, size, ones = compiled(network, K.optimizers.SGD(0.4, 0.9), lambda _, output: output), 2, np.ones((12, 1))
    logs = fit(model, first(hvd.callbacks.LearningRateWarmupCallback(0.4, 2)), x=ones, y=ones, batch_size=4, epochs=3)
    expected = [0.4 / size * ((step + 1) / 3 * (size - 1) / 2 + 1) for step in range(6)] + [0.4] * 3
    np.testing.assert_allclose(logs["lr"], expected[2::3], 1e-5)
    weight = velocity = 0.0
    for before, now in zip([0.4, *expected], expected, strict=False):
        velocity = 0.9 * velocity * now / before - now
        weight += velocity
    np.testing.assert_allclose(model.get_weights()[0], weight, 1e-4)


def refused(message: str, call) -> None:
    """Check that a call raises on every worker, so that none waits for another."""
    with pytest.raises((RuntimeError, ValueError), match=message):
        call()


@contextlib.contextmanager
def warned(message: str):
    """Check that rank 0 warns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert hvd.rank() or [each for each in caught if message in str(each.message)], message


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


def case_an_optimizer_that_exchanges_nothing():
    """Wherever the wrapper was lost, or never there."""
    file = Path(tempfile.mkdtemp()) / "model.keras"
    model = compiled()
    fit(model, first())
    model.save(file)
    again, copy, plain, unbuilt = dense(), dense(), dense(), K.Sequential([K.layers.Dense(3)])
    again.compile(type(model.optimizer).from_config(model.optimizer.get_config()), "mse")
    copy.compile_from_config(model.get_compile_config())
    plain.compile("adam", "mse")
    unbuilt.compile("adam", "mse")
    for each in (K.models.load_model(file), again, copy, plain, unbuilt):
        for callback in (hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()):
            refused("exchanges no gradients.*hvd.DistributedOptimizer", lambda: fit(each, [callback]))  # noqa: B023


def case_a_model_that_one_worker_has_built():
    K.utils.set_random_seed(hvd.rank())
    model = K.Sequential([K.layers.Dense(3)])
    if hvd.rank() == 0:
        model.build((None, 4))
    fit(compiled(model), first(), epochs=2)
    expect_equal(model)


def case_callbacks_used_again():
    """For each fold a new model, and a second fit of a model whose weights rank 0 alone has loaded."""
    callbacks = first(hvd.callbacks.MetricAverageCallback())
    for fold in range(2):
        model = compiled()
        model.set_weights([np.full(each.shape, fold + hvd.rank(), "f") for each in model.weights])
        for _ in range(2):
            fit(model, callbacks, epochs=2)
            expect_equal(model)
            if hvd.rank() == 0:
                model.set_weights([each + 1 for each in model.get_weights()])


def case_a_worker_drifts_apart():
    """By hand, on one rank: weights, learning rate, momentum; weights before a fit."""
    for change, name in (
            (lambda model: model.layers[1].bias.assign([9, 9, 9]), "bias"),
            (lambda model: setattr(model.optimizer, "learning_rate", 0.5), "learning_rate"),
            (lambda model: model.optimizer.momentums[0].assign_add(model.weights[0]), "momentum")):
        for epochs, place in ((1, "the end of the training"), (2, "the start of epoch 2")):
            model = compiled()
            once = K.callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs: change(model) if hvd.rank() and not epoch else None)  # noqa: B023
            refused(rf"differ in \S*{name}\S* at {place}", lambda: fit(model, first(once), epochs=epochs))  # noqa: B023
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
    wide = K.Sequential([K.layers.Input((4,)), K.layers.Dense(3 + hvd.rank(), "relu"), K.layers.Dense(3)])
    for message, callbacks, model, arguments in (
            ("rank 0 is at the end of the training, rank 1 at the start of epoch 3.*EarlyStopping",
             first(average, *stop), compiled(), {"epochs": 4}),
            ("the metrics: rank 0 has loss, val_loss, rank 1 loss; .*validation data", first(average), compiled(),
             validation),
            ("rank 0 is at the start of fit, rank 1 at its first step", first() if one else [], compiled(), {}),
            ("the number of steps per epoch: rank 0 has 6, rank 1 5", first(), compiled(),
             {"steps_per_epoch": 6 - hvd.rank()}),
            ("the number of epochs", first(), compiled(), {"epochs": 2 + hvd.rank()}),
            ("the optimizer's momentum: rank 0 has 0.5, rank 1 0.6", first(),
             compiled(optimizer=K.optimizers.SGD(0.1, 0.5 + 0.1 * hvd.rank())), {}),
            ("the shapes of the weights", first(), compiled(wide), {})):
        refused(message, lambda: fit(model, callbacks, **arguments))  # noqa: B023 - called at once
    fit(compiled(), first(), **validation)  # No value of the other worker is needed.


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
    for sizes, eager in (((3, 3), False), ((3, 3), True), ((3, 5), False)):
        K.utils.set_random_seed(1)
        refused("the gradient of .*rank 0 has .*missing_as_zeros", lambda: fit(
            compiled(TwoHeads(sizes), run_eagerly=eager), first(), y=share(TARGETS)[:, 0]))  # noqa: B023
    model = TwoHeads()
    model.build((None, 4))
    model.compile(hvd.DistributedOptimizer(K.optimizers.SGD(0.1), missing_as_zeros=True), "mse", jit_compile=False)
    before = [each.get_weights()[0] for each in model.heads]
    fit(model, first(), y=share(TARGETS)[:, 0])
    expect_equal(model)
    assert all((old != head.get_weights()[0]).any() for old, head in zip(before, model.heads, strict=True))
    variables = [tf.Variable(0.0), tf.Variable(0.0)]
    optimizer = hvd.DistributedOptimizer(K.optimizers.SGD(1.0))
    optimizer.apply([tf.constant(1.0), tf.constant(1.0)], variables)
    refused("is none here and was dense", lambda: optimizer.apply([tf.constant(1.0), None], variables))


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
    compiled(model, K.optimizers.SGD(0.0), {"a": "mse", "b": "mae"})
    expected = model.evaluate(NUMBERS[:9], dict.fromkeys("ab", TARGETS[:9]), verbose=0, return_dict=True)
    mine = [slice(0, 6), slice(6, 9)][hvd.rank()]
    data = NUMBERS[mine], dict.fromkeys("ab", TARGETS[mine])
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
            return {"per_class": tf.constant([0.0, 4.0]) * hvd.rank()}

    model = Own()
    model.compile(loss="mse", jit_compile=False)
    with warned("per_class is the mean of the workers' values"):
        logs = fit(model, [hvd.callbacks.MetricAverageCallback()])
    np.testing.assert_allclose(logs["per_class"][0], [0, 2])
    with warned("largest is the mean of the workers' values"):
        fit(compiled(metrics=[Largest()]), first(hvd.callbacks.MetricAverageCallback()))


def batches(rows, epochs: int = 1):
    """Yield the samples of these rows, batch by batch."""
    for each in [*rows] * epochs:
        yield NUMBERS[each], TARGETS[each]


ROWS = {  # Of each rank, batch by batch; together they are batches of six or fewer.
    "the last": (([0, 1, 2], [6, 7, 8], [12, 13, 14]), ([3, 4, 5], [9, 10, 11], [15])),
    "all": (([0, 1, 2, 3], [6, 7, 8, 9], [12, 13, 14, 15]), ([4, 5], [10, 11], [16, 17])),
    "the second": (([0, 1, 2], [6, 7, 8], [12, 13, 14]), ([3, 4, 5], [9], [15, 16, 17])),
}


def case_unequal_batches():
    """Each counts by its samples; a loss that is a sum needs no weights, also after another `compile`."""
    total = K.losses.MeanSquaredError(reduction="sum")
    for rows in ROWS.values():
        whole = [[*mine, *other] for mine, other in zip(*rows, strict=True)]
        together, alone = dense(), dense()
        for loss, factor in (("mse", 1), (total, 1 / hvd.size())):
            compiled(together, K.optimizers.SGD(0.1), loss)
            alone.compile(K.optimizers.SGD(0.1 * factor), loss, jit_compile=False)
            for model, mine, callbacks in ((alone, whole, []), (together, rows[hvd.rank()], first())):
                model.fit(batches(mine, 2), epochs=2, steps_per_epoch=3, verbose=0, callbacks=callbacks)
            expect_close(together.get_weights(), alone.get_weights())


def case_unequal_passes():
    """The passes of an update are one batch: of the samples of all workers."""
    model, alone = dense(), dense()
    for average in (True, False):
        optimizer = hvd.DistributedOptimizer(K.optimizers.SGD(0.1), backward_passes_per_step=3,
                                             average_aggregated_gradients=average)
        model.compile(optimizer, "mse", jit_compile=False)
        model.fit(batches(ROWS["all"][hvd.rank()]), steps_per_epoch=3, verbose=0, callbacks=first())
        alone.compile(K.optimizers.SGD(0.1 if average else 0.3), "mse", jit_compile=False)
        alone.fit(NUMBERS[:18], TARGETS[:18], 18, verbose=0)
        expect_close(model.get_weights(), alone.get_weights())


class Unknown(K.Model):
    """A train step that is Keras' own; nobody knows that."""

    def train_step(self, data):
        return super().train_step(data)


def case_what_cannot_be_weighted_is_said():
    inputs, mine = K.layers.Input((4,)), slice(7 - 2 * hvd.rank())
    with warned("[7.0, 5.0] samples"):
        fit(compiled(Unknown(inputs, K.layers.Dense(3)(inputs))), first(), x=NUMBERS[mine], y=TARGETS[mine])


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
    logs = fit(compiled(), first(hvd.callbacks.MetricAverageCallback(), *callbacks(files[0])), epochs=20,
               validation_data=(NUMBERS[validated], TARGETS[validated]))
    assert logs.keys() == expected.keys()
    assert 4 < len(logs["loss"]) < 20
    for name, values in logs.items():
        np.testing.assert_allclose(values, expected[name], 1e-3, err_msg=name)
    expect_close(*(K.models.load_model(each).get_weights() for each in files), 1e-3)


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


@K.utils.register_keras_serializable("case")
class Own(K.optimizers.Adam):
    """A class of the user's."""


def case_a_saved_model_goes_on_as_it_was():
    """With its class, passes, operation and schedule, through either loader."""
    file = Path(tempfile.mkdtemp()) / "model.keras"
    decay = K.optimizers.schedules.PiecewiseConstantDecay([3], [0.1, 0.01])
    for settings in ({"backward_passes_per_step": 2, "average_aggregated_gradients": True}, {"op": hvd.Sum}, {}):
        models = []
        for _ in range(2):
            model = dense()
            model.compile(hvd.DistributedOptimizer(Own(decay), **settings), "mse", jit_compile=False)
            fit(model, first())
            models.append(model)
        models[1].save(file)
        plain = K.models.load_model(file)
        assert type(plain.optimizer) is Own
        if settings:
            refused("was saved with", lambda: hvd.DistributedOptimizer(plain.optimizer))  # noqa: B023
        plain.optimizer = hvd.DistributedOptimizer(plain.optimizer, **settings)
        for model in (models[0], hvd.load_model(file), plain):
            fit(model, first())
            np.testing.assert_array_equal(np.ravel(gathered(state(model))), np.ravel(gathered(state(models[0]))))


def case_layers_that_keep_more_than_weights():
    """Copies of variables are renewed by the broadcast; tables that differ, and `synchronized`, are refused."""
    layers = K.layers
    normalize, bins = layers.Normalization(), layers.Discretization(num_bins=4)
    normalize.adapt(NUMBERS * (1 + hvd.rank()))
    bins.adapt(NUMBERS)
    model = compiled(K.Sequential([layers.Input((4,)), normalize, bins, layers.Dense(3)]))
    fit(model, first())
    result = gathered([model.predict(NUMBERS, verbose=0)])
    assert (result == result[0]).all()
    words = layers.StringLookup(output_mode="count")
    words.adapt(["a", "b", "c"][:2 + hvd.rank()])
    refused("the vocabulary", lambda: fit(compiled(K.Sequential([words, layers.Dense(3)])), first(),
                                          x=tf.constant(["a"] * 4), y=np.zeros((4, 3), "f")))
    refused("synchronized=False", lambda: fit(compiled(K.Sequential(
        [layers.Input((4,)), layers.BatchNormalization(synchronized=True), layers.Dense(3)])), first()))


def case_statistics_of_batch_norm():
    """They are each worker's own until they are averaged, which a line offers."""
    model = compiled(K.Sequential([K.layers.Input((4,)), K.layers.BatchNormalization(), K.layers.Dense(3)]))
    with warned("average_statistics"):
        fit(model, first())
    before = gathered(model.non_trainable_weights)
    hvd.average_statistics(model)
    np.testing.assert_allclose(gathered(model.non_trainable_weights), [before.mean(0)] * hvd.size(), 1e-5)


def case_bfloat16():
    K.config.set_dtype_policy("bfloat16")
    try:
        model = compiled(embedding(), K.optimizers.SGD(0.1))
        fit(model, first(hvd.callbacks.MetricAverageCallback()), x=share(SENTENCES))
        result = gathered([tf.cast(each, tf.float32) for each in model.weights])
        assert (result == result[0]).all()
    finally:
        K.config.set_dtype_policy("float32")


def case_numbers():
    """A number of Python, and the mean of integers, are exact."""
    rank = hvd.rank()
    for value in (3 + rank, np.int32(3 + rank), tf.constant(3 + rank), [3 + rank]):
        assert np.ravel(hvd.allreduce(value))[0] == 3.5, value
    assert float(hvd.allreduce(0.1)) == float(hvd.broadcast(0.1 * (1 + rank), 0)) == 0.1
    assert hvd.allreduce(tf.constant(1 + rank), op=hvd.Sum).dtype == tf.int32
    assert hvd.allgather([0.1]).numpy().tolist() == [0.1, 0.1]
    assert hvd.reducescatter(np.arange(2) + rank).numpy().tolist() == [rank + 0.5]


def case_process_set():
    """Ranks 0 and 2 average their gradients, rank 1 uses its own."""
    variable, table = tf.Variable([0.0]), tf.Variable(tf.zeros([3, 1]))
    dense_one, sparse_one = (hvd.DistributedOptimizer(K.optimizers.SGD(1.0), process_set=EVEN) for _ in range(2))
    tf.function(lambda grad: dense_one.apply([grad], [variable]))(tf.constant([float(hvd.rank())]))
    rows = tf.IndexedSlices(tf.constant([[2.0]]), tf.constant([hvd.rank()]), tf.constant([3, 1]))
    sparse_one.apply([rows], [table])
    assert float(variable[0]) == -1.0
    assert table.numpy().ravel().tolist() == ([0, -2, 0] if hvd.rank() == 1 else [-1, 0, -1])


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
