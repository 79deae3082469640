"""Exercises of lab 2: speedup, efficiency and steps; all-reduce and shard by hand; a train step."""

import math
import re

import numpy as np

from labs.exercises.code_tasks import HASH, SHARDED, Call, StudentFunction, Task, bug, close, code
from labs.exercises.fresh_process import grade_step
from labs.exercises.grading import Question, format_value, grade_efficiency, grade_number, grade_speedup, is_number
from labs.exercises.selecting import Record, images_per_sec, multi_worker, newest, pair_with_one_worker

M3 = "section 'M3: accuracy, time, speedup' of notebooks/lab02_horovod.ipynb"
"""Makes a comparable pair: without GPUs, one worker gets as many threads as each of several."""
PAIR = pair_with_one_worker(M3)
SEVERAL = newest("several workers", "`labs run lab02_horovod --workers 2`",
                 lambda run: multi_worker(run) and images_per_sec(run))


def _steps(answer, run: Record) -> str:
    images, batch, size = run["history"][0]["images"], run["config"]["batch_size"], run["layout"]["size"]
    right = math.ceil(images / (batch * size))
    return grade_number(answer, right, "steps", "training images / (batch size x hvd.size()), rounded up", {
        "that is what one worker alone would take; a step trains on the batches of all workers":
            math.ceil(images / batch),
        "that adds up the steps of all workers; they take each step together": right * size,
        "that leaves out the last step, on the remaining images": images // (batch * size),
        "that is not rounded up: the remaining images make a step, too": images / (batch * size)}, rel_tol=1e-6)


def _share_of_images(answer, *runs: Record) -> str:
    size = runs[0]["layout"]["size"]
    missed = (1 - 1 / size) ** size
    return grade_number(answer, 1 - missed, "share", f"1 - (1 - 1/N)^N with N = {size}", {
        "that is the share that no worker sees": missed,
        "that is the share of one worker; the others see some images that it does not see": 1 / size,
        "that is the result of sharding; here, each worker draws without knowing what the others draw": 1,
    }, rel_tol=0.005)


QUESTIONS = {
    "q1": Question(PAIR, grade_speedup, timed=True),
    "q2": Question(PAIR, grade_efficiency, timed=True),
    "q3": Question(SEVERAL, _steps),
    "q4": Question(SEVERAL, _share_of_images),
}


def _grade_allreduce(run: StudentFunction) -> str:
    cases = ([[1.0], [3.0]], [[5.0]], [[1.0, 2.0], [3.0, 6.0]], [[1.0, 0.0], [2.0, 3.0], [6.0, 9.0]],
              [[[1.0, 2.0], [3.0, 4.0]], [[3.0, 2.0], [1.0, 0.5]]])
    drawn = [[run.real(0, 9) for _ in range(3)] for _ in range(run.whole(3, 5))]
    for ranks in (*cases, drawn):
        values = [np.array(each) for each in ranks]
        call = run(values)
        call.expect(isinstance(call.value, list | tuple) and len(call.value) == len(values), "not one array per rank")
        held = call.arrays(call.value, values, "an array has another shape than those that went in")
        call.expect(all(close(each, held[0]) for each in held), "the ranks do not all hold the same")
        call.expect(len(values) == 1 or not close(held[0], np.sum(values, axis=0)), "that is the sum, not the mean")
        call.expect(close(held[0], np.mean(values, axis=0)), "that is not the mean of all ranks, element by element")
        call.expect(len(call.args[0]) == len(values) and all(map(close, call.args[0], values)),
                    f"the call changed its argument to {format_value(call.args[0])}")
    return "on one to three ranks, all hold the mean, and the arrays that went in are unchanged"


def _grade_shard(run: StudentFunction) -> str:
    remainder = re.findall(r"Remainder: (pad|drop)\b", run.cell)
    pads = remainder[-1:] != ["drop"]  # The docstring's; comments before the function may name both.
    for images, size in ((2, 2), (4, 2), (3, 2), (7, 3), (64, 4), (run.whole(20, 60), run.whole(2, 5))):
        indices = np.arange(10, 10 + images)
        together = _shards(run, indices, size)
        each = [_indices(shard) for shard in together.value]
        together.expect(all(set(shard) <= set(indices.tolist()) for shard in each),
                        "a shard has something that is not one of the indices")
        together.expect(len({len(shard) for shard in each}) == 1,
                        "the ranks have unequal numbers of images; the one with more steps would wait forever")
        used = [index for shard in each for index in shard]
        if images % size == 0:
            together.expect(len(used) == images, "the shards together have another number of images than there are")
        else:
            together.expect(len(used) == (images // size + pads) * size, (
                "images are left out, but the remainder is to be padded" if pads and len(used) < images else
                "the remainder is to be padded to the next multiple of the size" if pads else
                "the remainder is to be dropped, no more and no less"))
        together.expect(len(set(used)) == min(len(used), images), (
            "the shards are not disjoint: some images are in two of them, so others are in none. Do all ranks cut "
            "the same order?"))
    _expect_new_orders(run, np.arange(10, 26))
    return ("shards of equal length, disjoint and covering " + ("(the remainder padded)" if pads else
            "(the remainder dropped)") + "; the order depends on seed and epoch alone")


def _shards(run: StudentFunction, indices: np.ndarray, size: int) -> Call:
    """Return the calls of all ranks as one: its value is the list of their shards."""
    calls = [run(indices, rank, size, 0, 1) for rank in range(size)]
    return Call(calls[0].text.replace("rank=0", f"rank=0 ... {size - 1}"), (), [call.value for call in calls])


def _indices(shard) -> list:
    """Return a shard; a list of NaN if it is not a list of numbers."""
    return shard if isinstance(shard, list) and all(map(is_number, shard)) else [math.nan]


def _expect_new_orders(run: StudentFunction, indices: np.ndarray) -> None:
    first = run(indices, 0, 2, 0, 1)
    mine = _indices(first.value)
    first.expect(mine != sorted(mine), "the indices are in the order in which they came: they are not shuffled")
    again = run(indices, 0, 2, 0, 1)
    again.expect(_indices(again.value) == mine, "the same call returned something else before: the order must depend "
                                                "on seed and epoch alone, or the ranks would not agree on it")
    other = run(indices, 0, 2, 0, 1, second_process=True)
    other.expect(_indices(other.value) == mine, f"in another process the same call returned something else, and {HASH}")
    later = run(indices, 0, 2, 1, 1)
    later.expect(_indices(later.value) != mine, "that is the shard of epoch 0, too: each epoch needs a new order")
    later.expect(set(_indices(later.value)) != set(mine), "those are the images of epoch 0 in another order: shuffle "
                                                          "all indices before they are divided, not each shard")
    seeded = run(indices, 0, 2, 0, 2)
    seeded.expect(_indices(seeded.value) != mine, "that is the shard of seed 1, too: the order must depend on the seed")


TASKS = {
    "allreduce_mean": code("values", _grade_allreduce),
    "shard": code("indices, rank, size, epoch, seed", _grade_shard),
    "step": Task(grade_step, ("model", "images", "labels", "optimizer", "hvd"), on_workers=True),
    "bug": bug("the workers end with different weights", 27, (
        "equal gradients keep equal weights equal, and different ones different: without a broadcast the workers "
        "begin, and so end, at different weights"), {
        "the weights become NaN": "they stay finite: look at what it prints"}, {
        19: "different seeds are wanted here, because dropout must differ between workers; what else would make the "
            "weights equal at the start?", 20: SHARDED,
        25: "the optimizer averages the gradients, as it should; but what are they added to?",
        31: "it gathers the weights of all workers to compare them, and changes none"}),
}
