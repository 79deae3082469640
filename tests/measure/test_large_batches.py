"""Many trainings in one process: the steps are those of Keras, and the miss and dead ReLUs are counted."""

import numpy as np
import pytest
import tensorflow as tf

from labs.datasets.arrays import Arrays
from labs.datasets.sharding import shard
from labs.measure.large_batches import Trainer

BATCH, EPOCHS, N = 8, 2, 20  # The last step of an epoch has four images.
FALLING = np.repeat([0.05, 0.005], 3)


@pytest.fixture
def model():
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    return tf.keras.Sequential([
        layers.Input((4, 4, 1), dtype="uint8"), layers.Rescaling(1 / 127.5, offset=-1), layers.Flatten(),
        layers.Dense(6, activation="relu"), layers.Dense(3, activation="softmax")])


@pytest.fixture
def arrays():
    rng = np.random.default_rng(1)
    images, labels = rng.integers(0, 256, (2 * N, 4, 4, 1), np.uint8), rng.integers(0, 3, 2 * N)
    return Arrays(images[:N], labels[:N], images[N:], labels[N:], ("a", "b", "c"))


def by_keras(model, arrays, optimizer, rates, correct=False):
    """Return the weights after Keras' own steps on the same batches; `correct` is Goyal's momentum correction."""
    step = 0
    for epoch in range(EPOCHS):
        batches = shard(N, BATCH, 0, 1, epoch, seed=3)
        for rows, weights in zip(batches.rows, batches.weights, strict=True):
            with tf.GradientTape() as tape:
                losses = tf.keras.losses.sparse_categorical_crossentropy(
                    arrays.train_labels[rows], model(arrays.train_images[rows]))
                loss = tf.reduce_mean(weights * losses)
            optimizer.learning_rate = float(rates[step])
            if correct and step:
                for velocity in optimizer.momentums:
                    velocity.assign(velocity * (rates[step] / rates[step - 1]))
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables,
                                          strict=True))
            step += 1
    return model.get_weights()


@pytest.mark.parametrize(("name", "rates", "correct"), [
    ("sgd", [0.05] * 6, False), ("sgd", FALLING, True), ("adam", FALLING / 10, False)])
def test_the_steps_are_those_of_keras_with_the_correction_of_momentum(model, arrays, name, rates, correct):
    start = model.get_weights()
    trainer, epochs = Trainer(model, arrays, name, momentum=0.9), []
    row = trainer.train(BATCH, rates, EPOCHS, seed=3, after=epochs.append)
    ours = model.get_weights()
    assert (row["updates"], epochs) == (6, [0, 1, 2])
    again = trainer.train(BATCH, rates, EPOCHS, seed=3, after=epochs.append)
    assert again["val_loss"] == pytest.approx(row["val_loss"]), "each training starts from the same weights"

    model.set_weights(start)
    keras = {"sgd": tf.keras.optimizers.SGD(0.05, momentum=0.9), "adam": tf.keras.optimizers.Adam()}[name]
    theirs = by_keras(model, arrays, keras, rates, correct)
    assert max(np.abs(a - b).max() for a, b in zip(ours, theirs, strict=True)) < 1e-5


def test_one_step_misses_nothing_and_the_weights_stay(model, arrays):
    trainer, start = Trainer(model, arrays), model.get_weights()
    one, two = trainer.measure_misses(np.arange(16).reshape(2, 8), 0.5, (1, 2))
    assert one < 1e-6 < 1e-3 < two
    assert all(np.array_equal(a, b) for a, b in zip(start, model.get_weights(), strict=True))


def test_a_relu_that_is_zero_for_all_images_is_dead(model, arrays):
    kernel, _, *rest = model.get_weights()
    model.set_weights([kernel, np.where(np.arange(6) < 2, -1e3, 1e3).astype(np.float32), *rest])
    assert Trainer(model, arrays).evaluate()["dead"] == pytest.approx(2 / 6)
