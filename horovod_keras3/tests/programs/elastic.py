"""Elastic training with `fit`: one worker is killed, and later another one joins; rank 0 writes what it saw."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd

EPOCHS, STEPS, FOLDER, LEAVING = 5, 6, Path(sys.argv[1]), "127.0.0.1"


def list_hosts(*names):
    """Replace the file with the hosts of the job, which horovodrun reads once a second."""
    new = FOLDER / f"hosts-{os.getpid()}"
    new.write_text("".join(f"{name}:1\n" for name in names))
    new.replace(FOLDER / "hosts")


def fail_or_grow(batch, logs):
    """Kill the leaving worker in the middle of epoch 2; in epoch 4 let another one join, and wait for it."""
    state.log = [*state.log, (state.epoch, state.batch, hvd.size())]
    alone = any(size == 1 for *_, size in state.log)
    if os.environ["HOROVOD_HOSTNAME"] == LEAVING and (state.epoch, state.batch) == (1, 4) and not alone:
        list_hosts("localhost")
        os.kill(os.getpid(), signal.SIGKILL)
    if hvd.size() == 1 and state.epoch == 3:
        list_hosts("localhost", LEAVING)
        while True:  # Until the new worker is there: the commit raises an exception then.
            time.sleep(0.2)
            state.commit()


@hvd.elastic.run
def train(state):
    if state.epoch < EPOCHS:
        model.fit(data, epochs=EPOCHS - state.epoch, steps_per_epoch=STEPS, verbose=0, callbacks=[
            hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.UpdateEpochStateCallback(state),
            tf.keras.callbacks.LambdaCallback(on_train_batch_end=fail_or_grow), hvd.elastic.CommitStateCallback(state)])


hvd.init()
random = np.random.default_rng(hvd.rank())
data = tf.data.Dataset.from_tensors((random.normal(size=(8, 4)).astype("f"), np.ones((8, 2), "f"))).repeat()
model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Embedding(9, 3), tf.keras.layers.Flatten(),
                             tf.keras.layers.Dense(2)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.05, 0.9)), "mse", jit_compile=False)
state = hvd.elastic.KerasState(model, batch=0, epoch=0, log=[])
train(state)
weights = hvd.allgather(np.concatenate([np.ravel(each) for each in model.get_weights()])[None]).numpy()
if hvd.rank() == 0:
    result = {"log": state.log, "iterations": int(model.optimizer.iterations),
              "equal": bool((weights == weights[0]).all()) and len(weights) == 2}
    (FOLDER / "results.json").write_text(json.dumps(result))
