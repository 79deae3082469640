"""Lab 11: what follows from nodes x workers, the exchange in a step, and what is noise."""

from __future__ import annotations

import math

from labs.exercises.judge import Question, Record, against_one, newest, number, parts, several, timed

COMMAND = "`labs run lab11_multinode --workers 2`"
NOTEBOOK = "section 'Here: one node' of notebooks/lab11_multinode.ipynb"
NODES, EACH = 4, 2


def _any(records: list[Record]) -> list[Record]:
    return [newest(records, "a run", COMMAND, lambda run: run["history"])]


def _exchanged(records: list[Record]) -> list[Record]:
    return [newest(records, "several workers", COMMAND,
                   lambda run: several(run) and timed(run) and run["metrics"].get("allreduce_seconds"))]


def _plan(answer, runs: list[Record]) -> str:
    (run,) = runs
    config, images = run["config"], run["history"][0]["images"]
    batch, base, rate = (config[name] for name in ("batch_size", "base_batch_size", "base_lr"))
    size = NODES * EACH

    def steps(workers: int) -> int:
        return math.ceil(images / (batch * workers))

    def counted(of) -> dict[str, float]:
        return {"that counts nodes; hvd.size() is all workers of all nodes": of(NODES),
                "that counts the workers of one node, hvd.local_size()": of(EACH),
                "that is one worker's": of(1)}

    return parts(answer, {
        "global_batch_size": lambda value: number(
            value, batch * size, "images", "batch_size x hvd.size()", counted(lambda n: batch * n), tolerance=1e-6),
        "scaled_lr": lambda value: number(
            value, rate * batch * size / base, "learning rate", "base_lr x global batch / base_batch_size",
            counted(lambda n: rate * batch * n / base) |
            {"k is global batch / base_batch_size, and not the number of workers": rate * size}, tolerance=1e-3),
        "steps_per_epoch": lambda value: number(
            value, steps(size), "steps", "training images / global batch, rounded up", counted(steps) |
            {"that is not rounded up: what is left over is a step, too": images / (batch * size),
             "that leaves out the last, smaller step": images // (batch * size)}, tolerance=1e-6),
    })


def _share(answer, runs: list[Record]) -> str:
    (run,) = runs
    layout, exchange = run["layout"], run["metrics"]["allreduce_seconds"]
    step = layout["global_batch_size"] / timed(run)
    return number(answer, exchange / step, "share", "allreduce_seconds / (global batch / images_per_sec)", {
        "that is a step of the batch of one worker; images_per_sec are those of all": exchange / step * layout["size"],
        "that is upside down": step / exchange,
        "that is of an epoch; the exchange is made in each step": exchange / run["timings"]["seconds_per_epoch"],
        "that is the time of the exchange, in seconds": exchange,
    })


def _wrong(run: Record) -> bool:
    """Whether some test images were mistaken: a share of 1 has no standard error to speak of."""
    return bool(run["metrics"].get("test_images")) and 0 < run["metrics"]["test_accuracy"] < 1


def _noise(answer, runs: list[Record]) -> str:
    shares = [run["metrics"]["test_accuracy"] for run in runs]
    variances = [share * (1 - share) / run["metrics"]["test_images"] for share, run in zip(shares, runs, strict=True)]
    apart = abs(shares[1] - shares[0])
    right = apart / math.sqrt(sum(variances))
    return number(answer, right, "standard errors", "|p1 - p2| / sqrt(p1 (1 - p1) / n + p2 (1 - p2) / n)", {
        "that is in standard errors of one accuracy; both are uncertain, and their difference more so":
            apart / math.sqrt(variances[0]),
        "that is in standard errors of the other accuracy alone; the difference is more uncertain":
            apart / math.sqrt(variances[1]),
        "that adds the two standard errors; their squares add": apart / sum(map(math.sqrt, variances)),
        "that is the difference itself": apart,
        "that is in percent of the images": 100 * apart,
        "that is the standard error": math.sqrt(sum(variances)),
    }, slack=0.02)


QUESTIONS = {
    "q1": Question(f"This run's settings go to {NODES} nodes with {EACH} workers on each. What are the global batch, "
                   "the learning rate by the linear rule, and the steps of an epoch?",
                   '`{"global_batch_size": ..., "scaled_lr": ..., "steps_per_epoch": ...}`', _any, _plan),
    "q2": Question("Which share of a step of this run would its exchange be, if nothing of it were hidden behind "
                   "computing?", "a share, from 0 to 1", _exchanged, _share),
    "q3": Question("How far apart are the test accuracies of these two runs, in standard errors of their difference? "
                   "(Below 2 it is noise.)", "a number",
                   lambda records: against_one(records, NOTEBOOK, fits=_wrong), _noise),
}
