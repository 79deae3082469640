"""Made-up records of lab 11, and typical mistakes."""

from __future__ import annotations

import math

from labs.pages import lab11
from tests.exercises.planted import made

RECORDS = [
    made("lab11", images_per_sec=90, base_batch_size=20, metrics={"test_accuracy": 0.93, "test_images": 359},
         batch_size=128),
    made("lab11", 4, 280, base_batch_size=20,
         metrics={"test_accuracy": 0.96, "test_images": 359, "allreduce_seconds": 0.07}),
]

WRONG = [
    ("q1", lambda runs, right: right | {"global_batch_size": 4 * 32}, "counts nodes; hvd.size()"),
    ("q1", lambda runs, right: right | {"scaled_lr": 0.008}, "k is global batch / base_batch_size"),
    ("q1", lambda runs, right: right | {"steps_per_epoch": 1000 // 256}, "leaves out the last, smaller step"),
    ("q2", lambda runs, right: 4 * right, "uses the batch of one worker"),
    ("q3", lambda runs, right: 0.03, "the difference itself"),
    ("q3", lambda runs, right: 0.03 / math.sqrt(0.93 * 0.07 / 359), "standard errors of one accuracy"),
]


def planned(**changes):
    """Return a wrong `plan`: changes compute some of its results from its arguments."""
    def plan(nodes, tasks, batch, images, lr, base, scaling):
        size = nodes * tasks
        k = batch * size / base
        right = {"global_batch_size": batch * size, "steps_per_epoch": math.ceil(images / (batch * size)),
                 "scaled_lr": lr * {"linear": k, "sqrt": math.sqrt(k), "none": 1}[scaling]}
        return right | {name: change(nodes, size, batch, images, lr) for name, change in changes.items()}

    return plan


def without_backfill(jobs, nodes):
    """Return starts of which none is before that of an earlier job."""
    starts, placed = [], []
    for wanted, limit in jobs:
        moments = sorted({starts[-1] if starts else 0, *(end for _, end, _ in placed)})
        start = next(time for time in moments if time >= max(starts, default=0) and
                     sum(count for begin, end, count in placed if begin <= time < end) + wanted <= nodes)
        starts.append(start)
        placed.append((start, start + limit, wanted))
    return starts


def greedy(jobs, nodes):
    """Return starts of jobs that take free nodes at once, and so delay a wide job before them."""
    waiting, running, starts, now = list(enumerate(jobs)), [], {}, 0
    while waiting:
        for index, (wanted, limit) in list(waiting):
            if sum(count for _, end, count in running if end > now) + wanted <= nodes:
                starts[index] = now
                running.append((now, now + limit, wanted))
                waiting.remove((index, (wanted, limit)))
        now = min((end for _, end, _ in running if end > now), default=now)
    return [starts[index] for index in range(len(jobs))]


WRONG_CODE = [
    ("plan", planned(global_batch_size=lambda nodes, size, batch, images, lr: batch), "nodes x tasks x batch_size"),
    ("plan", planned(global_batch_size=lambda nodes, size, batch, images, lr: batch * nodes),
     "nodes x tasks x batch_size"),
    ("plan", planned(global_batch_size=lambda nodes, size, batch, images, lr: batch * (nodes if nodes > 1 else size)),
     "not to one of each node"),
    ("plan", planned(steps_per_epoch=lambda nodes, size, batch, images, lr: images // (batch * size)),
     "the last step may be smaller"),
    ("plan", planned(scaled_lr=lambda nodes, size, batch, images, lr: lr * size), "the root of k, or 1, by the rule"),
    ("plan", lambda *_: 1, "a dictionary with the keys"),
    ("step", lambda n, c, m, b: c + 8 * m / b, "nobody to exchange with"),
    ("step", lambda n, c, m, b: c + (n > 1) * 8 * m / b, "1 for two nodes only"),
    ("step", lambda n, c, m, b: c + 2 * (n - 1) / n * m / b, "8 bits"),
    ("step", lambda n, c, m, b: c + 2 * (n - 1) * 8 * m / b, "1 / N of the gradients"),
    ("step", lambda n, c, m, b: c + (n - 1) / n * 8 * m / b, "two phases"),
    ("step", lambda n, c, m, b: max(c, 2 * (n - 1) / n * 8 * m / b), "nothing overlaps"),
    ("start_times", lambda jobs, nodes: [0] * len(jobs), "more nodes are in use"),
    ("start_times", lambda jobs, nodes: [sum(limit for _, limit in jobs[:index]) for index in range(len(jobs))],
     "may run at the same time"),
    ("start_times", without_backfill, "without delaying any job before it: backfill"),
    ("start_times", greedy, "a job behind job 1 delays it"),
    ("start_times", lambda jobs, nodes: [start + 1 for start in lab11.planned_starts(jobs, nodes)],
     "free earlier"),
]
