"""Exercises of lab 6: bytes of the model and of the images, how many workers fit, accumulation, an undivided batch."""

import numpy as np

from labs.exercises.code_tasks import StudentFunction, bug, code
from labs.exercises.grading import Question, grade_entries, grade_number
from labs.exercises.selecting import Record, multi_worker, newest

RUN = "labs run lab06_memory"
MIB = 2**20


def _tried(run: Record) -> list[dict]:
    """Return those trials of a batch size search that fit into memory."""
    return [row for row in run.get("tables", {}).get("trials", []) if row.get("batch_size") and row["fits"]]


def _fixed(answer, run: Record) -> str:
    count, size = run["metrics"]["parameters"], run["layout"]["size"]
    right = 16 * count / MIB
    mistakes = {
        "that is the weights alone; gradients and Adam's two moments have as many numbers each": right / 4,
        "that leaves out the optimizer: Adam keeps two numbers for each parameter": right / 2,
        "that leaves out the gradients, or one of Adam's two moments": right * 3 / 4,
    }
    if size > 1:
        mistakes["data parallelism does not divide the model: each worker holds all of it"] = right / size
    formula = "4 numbers for each parameter x 4 bytes / 2^20, on every worker"
    return grade_number(answer, right, "MiB", formula, mistakes, rel_tol=0.01)


def _worker_shares(answer, *runs: Record) -> str:
    size = runs[0]["layout"]["size"]
    model = {"data parallelism does not divide the model: each worker holds all of it": 1 / size}
    batch = {"each worker processes its own share of a step's images": 1}
    return grade_entries(answer, {
        "parameters": lambda value: grade_number(value, 1, "share", "all parameters, on every worker", model),
        "images": lambda value: grade_number(value, 1 / size, "share", "batch_size / global batch", batch)})


def _slope(answer, *runs: Record) -> str:
    rows = _tried(runs[0])
    images, peaks = (np.array([float(row[name]) for row in rows]) for name in ("batch_size", "peak_mb"))
    each, start = np.polyfit(images, peaks, 1)
    most = images.argmax()
    formula = "the slope of a line through peak_mb as a function of batch_size, of the trials that fit"
    return grade_number(answer, each, "MiB", formula, {
        "that divides the whole peak by the number of images; it includes TensorFlow and the weights at any batch size":
            peaks[most] / images[most],
        "that is the line's intercept, the memory without images": start,
        "that is upside down: images per MiB": 1 / each}, rel_tol=0.03)


QUESTIONS = {
    "q1": Question(newest("a network", f"`{RUN}`", lambda run: run["metrics"].get("parameters")), _fixed),
    "q2": Question(newest("several workers", f"`{RUN} --workers 2 --batch-size 32`", lambda run: multi_worker(run)
                   and run["metrics"].get("parameters")), _worker_shares),
    "q3": Question(newest("a search for the largest batch", f"`{RUN} --search batch_size`", lambda run: not
                   multi_worker(run) and len(_tried(run)) > 1), _slope),
}


def _grade_model_bytes(run: StudentFunction) -> str:
    averages = {"sgd": 0, "momentum": 1, "adam": 2}
    for parameters in (1, 10_163, 557_443, run.whole(1000, 10**6)):
        for optimizer, kept in averages.items():
            call, right = run(parameters, optimizer), 4 * (2 + kept) * parameters
            call.expect_number(
                right, "each parameter has its weight, its gradient, and as many numbers as the optimizer keeps", {
                    "that counts numbers; a float32 number has 4 bytes": right / 4,
                    "one number per parameter is missing: weights, gradients, and what the optimizer keeps":
                        right - 4 * parameters})
    run.expect_value_error(1, "lion", because="nothing is known about this optimizer")
    return "weights, gradients and the optimizer's state of three optimizers, in bytes; others are refused"


def _grade_workers_needed(run: StudentFunction) -> str:
    # Arguments of `workers_needed` and the result; the last two have a remainder, and one image per worker.
    needs = ((400, 5.0, 64, 800, 1), (400, 5.0, 64, 600, 2), (400, 5.0, 65, 565, 2), (400, 5.0, 65, 560, 3),
             (400, 5.0, 64, 405, 64))
    held, most = run.whole(300, 500), run.whole(2, 8)
    drawn = held, 4.0, 64, held + 4 * most + 1, -(-64 // most)
    for *given, right in (*needs, drawn):
        fixed, per_image, batch, limit = given
        call = run(*given)
        workers = call.number("the result is a number of workers")
        call.expect(workers == int(workers) and 1 <= workers <= batch, "the result is a whole number, and no "
                                                                      "worker is without an image")
        share = -(-batch // int(workers))
        call.expect(fixed + per_image * share <= limit, "with this many workers the largest share does not fit: every "
                                                        "worker holds `fixed` in full, and a remainder goes to someone")
        call.expect(workers == right, "fewer workers can take this step, too")
    run.expect_value_error(400, 5.0, 64, 404, because="not even one image per worker fits")
    run.expect_value_error(900, 5.0, 64, 800, because="the model alone is too large, and every worker holds all of it")
    return "the fewest workers whose largest share fits; refused where one image per worker does not"


def _grade_accumulate(run: StudentFunction) -> str:
    pieces = ((16,), (16, 16), (16, 16, 16, 16), (20, 20, 20, 4))
    rng = np.random.default_rng(6)
    for images in pieces:
        each = [(run.rng if images == pieces[-1] else rng).normal(size=3).round(2) for _ in images]
        call, right = run(each, list(images)), np.average(each, axis=0, weights=images)
        (value,) = call.arrays([call.value], [right], "the result is one array, of the shape of each gradient")
        call.expect_close(value, right, "that is not the mean over all images of the batch", {
            "that is the sum: the loss is a mean, so the gradient is one, too": np.sum(each, axis=0),
            "every image counts alike, so a micro-batch of fewer images counts less": np.mean(each, axis=0)})
    return "the gradient of the whole batch, also from micro-batches of 20, 20, 20 and 4 images"


TASKS = {
    "model_bytes": code("parameters, optimizer", _grade_model_bytes),
    "workers_needed": code("fixed, per_image, global_batch, limit", _grade_workers_needed),
    "accumulate": code("gradients, images", _grade_accumulate),
    "bug": bug("a second worker saves no memory", 24, (
        "every worker takes the global batch, so its activations are those of one worker; the global batch has "
        "doubled, and the epoch has half of the steps"), {
        "some images are left out of an epoch": "the two shards together are all images"}, {
        23: "each worker takes every size-th image: all images are used once",
        25: "every worker holds the whole network, as data parallelism does; what should two workers halve?",
        28: "it averages the gradients; the learning rate stays, because the global batch is meant to stay",
        32: "it trains on the worker's own images; how many of them at once?"}),
}
