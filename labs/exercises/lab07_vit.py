"""Exercises of lab 7: patches, attention, the bandwidth above which two workers are faster, bytes per epoch."""

import math

import numpy as np

from labs.exercises.code_tasks import BROADCAST, SHARDED, StudentFunction, bug, close, code
from labs.exercises.grading import Question, grade_choice, grade_number, grade_speedup
from labs.exercises.selecting import Record, images_per_sec, multi_worker, newest, pair_with_one_worker

SWEEP = "`labs sweep lab07_vit --only backends`"
PAIR = pair_with_one_worker(SWEEP, strong=True, may_differ=("backend", "traffic"))
"""One worker exchanges nothing, so backend and traffic do not matter for it."""


def _smallest(records: list[Record]) -> list[Record]:
    """Return the pair with the fewest parameters."""
    sized = [run for run in records if run["metrics"].get("parameters")]
    for count in sorted({run["metrics"]["parameters"] for run in sized}):
        try:
            return PAIR([run for run in sized if run["metrics"]["parameters"] == count])
        except AssertionError:
            continue  # There is no pair for this network size.
    return PAIR([])


def _traffic(answer, run: Record) -> str:
    size, steps, images = run["layout"]["size"], run["history"][-1]["steps"], run["history"][-1]["images"]
    right = 2 * (size - 1) * 4 * run["metrics"]["parameters"] * steps / 1e6
    return grade_number(answer, right, "MB", "2 (n - 1) x 4 bytes x parameters x steps per epoch / 1e6", {
        "that is the number of bytes of one step": right / steps,
        "that is the number of bytes of all epochs": right * run["config"]["epochs"],
        "that is the number of bytes that one worker sends; all n send": right / size,
        "that is the images, which are not exchanged: each worker reads its own": images * 32 * 32 * 3 * 4 / 1e6,
    }, rel_tol=0.01)


def _winner(answer, *runs: Record) -> str:
    throughputs = {run["layout"]["size"]: images_per_sec(run) for run in runs}
    right = {size for size, value in throughputs.items() if value > 0.98 * max(throughputs.values())}
    others = dict.fromkeys(throughputs, "at the same global batch, these workers had fewer images_per_sec")
    others[1] = "at the same global batch, the other run had more images_per_sec"
    reason = "more workers are faster where the exchange takes less time than the arithmetic that they save"
    return grade_choice(answer, right, others, reason)


QUESTIONS = {
    "q1": Question(newest("several workers", "`labs run lab07_vit --workers 2`", lambda run: multi_worker(run) and
                   run["metrics"].get("parameters") and run["history"]), _traffic),
    "q2": Question(PAIR, grade_speedup, timed=True),
    "q3": Question(_smallest, _winner, timed=True),
}


def reference_patches(images: np.ndarray, patch: int) -> np.ndarray:
    """Return the patches; times the flattened kernel of Keras' Conv2D with this stride, they are its output."""
    n, side, _, channels = images.shape
    tiles = images.reshape(n, side // patch, patch, side // patch, patch, channels)
    return tiles.transpose(0, 1, 3, 2, 4, 5).reshape(n, (side // patch) ** 2, patch * patch * channels)


def _grade_patchify(run: StudentFunction) -> str:
    pictures = [(1, 2, 1, 1), (1, 4, 2, 1), (1, 4, 2, 3), (3, 12, 4, 3)]
    for n, side, patch, channels in pictures:
        images = np.arange(float(n * side * side * channels)).reshape(n, side, side, channels)
        images *= run.real(1, 2) if n > 1 else 1
        call, right = run(images, patch), reference_patches(images, patch)
        (value,) = call.arrays([call.value], [right],
                               "the shape must be [n, patches of an image, patch * patch * channels]")
        call.expect(close(np.sort(value, axis=None), np.sort(right, axis=None)),
                    "each value of the images must be in one patch")
        inside, wanted = np.sort(value, axis=2), np.sort(right, axis=2)
        call.expect(close(np.sort(inside, axis=1), np.sort(wanted, axis=1)),
                    "a patch must be a square of its image: after the first reshape, the axis of the rows inside a "
                    "patch must move behind that of the patches in a row")
        call.expect(close(inside, wanted), "the patches must be in reading order: left to right, then down")
        call.expect(close(value, right), "the pixels of a patch must be in reading order, each with its channels")
    return "the patches, in reading order; times the flattened kernel they are the output of Keras' Conv2D"


def reference_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, axis: int = 2) -> np.ndarray:
    """Return what Keras' MultiHeadAttention computes between its projections; `axis` is that of the softmax."""
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return weights / weights.sum(axis=axis, keepdims=True) @ v


def _grade_attention(run: StudentFunction) -> str:
    large = 1000.0
    heads = [(1, 1, 1), (1, 2, 1), (1, 3, 4), (2, 3, 4), (4, 17, 16)]
    rng = np.random.default_rng(1)
    for shape in heads:
        q, k, v = (run.rng if shape == heads[-1] else rng).normal(size=(3, *shape)).round(1)
        call, right = run(q, k, v), reference_attention(q, k, v)
        (value,) = call.arrays([call.value], [right], "the result is an array [heads, tokens, size], as q is")
        root = math.sqrt(shape[-1])
        call.expect_close(value, right, "each result must be the mean of v's rows, weighted by the softmax of the "
                          "scores, within a head", {
            "the scores must be divided by the root of size": reference_attention(q * root, k, v),
            "the scores must be divided by the root of size, not by size": reference_attention(q / root, k, v),
            "the softmax must be over the keys, so that the weights of one query sum to 1":
                reference_attention(q, k, v, axis=1)})
    call = run(large * np.ones((1, 2, 1)), np.ones((1, 2, 1)), np.ones((1, 2, 1)))
    call.numbers(np.ravel(call.value), 2,
                 "exp overflows for large scores: subtract the largest score of each query first; the weights stay")
    return "equal to Keras' MultiHeadAttention between its projections, large scores included"


def _grade_crossover(run: StudentFunction) -> str:
    links = [(1e6, 0.001, 8), (4e6, 0.002, 32), (3_387_432, 0.0014, 128), (23_000_000, 2e-4, 64)]
    for nbytes, seconds, batch in (*links, (run.whole(10**6, 10**7), run.real(0.001, 0.01), run.whole(8, 99))):
        call = run(nbytes, seconds, batch)
        right = 8 * nbytes / (seconds * batch / 2)
        call.expect_number(right, "at the crossover the exchange takes as long as the images that the second worker "
                                  "takes over", {
            "that is in bytes per second; a byte has 8 bits": right / 8,
            "the second worker saves only half of the images' time": right / 2,
            "two workers exchange M bytes in each direction, at the same time": 2 * right,
            "a byte has 8 bits, and the second worker saves half of the images' time": right / 16})
    return "8 M / (c B / 2): the exchange takes as long as half of the images"


TASKS = {
    "patchify": code("images, patch", _grade_patchify),
    "attention": code("q, k, v", _grade_attention),
    "crossover": code("gradient_bytes, image_seconds, global_batch", _grade_crossover),
    "bug": bug("the global batch grows with the workers", 21, (
        "each worker takes the whole global batch, so two workers take half of the steps, each with twice the "
        "images: another training, whose time must not be compared with one worker's"), {
        "some images are left out of an epoch": "steps times images per step are all images, on one worker and on "
            "two"}, {
        20: SHARDED, 22: "the steps follow from the batch of one worker, and are equal on all",
        25: "it averages the gradients, and its learning rate belongs to a step of 32 images of all workers",
        27: BROADCAST}),
}
