"""Exercises of lab 5: bus bandwidth, bytes and kinds of messages, a ring by hand, gradients in buckets."""

import numpy as np

from labs.exercises.code_tasks import AVERAGED, SHARDED, Call, StudentFunction, bug, close, code
from labs.exercises.grading import Question, grade_choice, grade_number
from labs.exercises.selecting import Record, Selector, multi_worker, newest

RUN = "labs run lab05_allreduce --workers 2"


def _reduced(run: Record) -> list[dict]:
    """Return the measured all-reduces of Horovod in TensorFlow graphs."""
    library = f"Horovod over {run['layout'].get('backend')}"
    return [row for row in run.get("tables", {}).get("collectives", [])
            if row["collective"] == "allreduce" and row["library"] == library]


def _with(table: str, study: str) -> Selector:
    return newest(f"the study {study}", f"`{RUN} --study {study}`",
                  lambda run: multi_worker(run) and len(run.get("tables", {}).get(table, [])) > 1)


def _busbw(answer, run: Record) -> str:
    size, row = run["layout"]["size"], max(_reduced(run), key=lambda row: row["bytes"])
    algbw = row["bytes"] / row["seconds"] / 1e9
    right = algbw * 2 * (size - 1) / size
    return grade_number(answer, right, "GB/s", "bytes / seconds x 2 (N - 1) / N / 1e9, of the largest message", {
        "that is algbw; in a ring each link carries 2 (N - 1) / N times the message": algbw,
        "that uses the factor of an all-gather, (N - 1) / N; an all-reduce is a reduce-scatter and an all-gather":
            right / 2})


def _step(answer, run: Record) -> str:
    size, gradients = run["layout"]["size"], run["metrics"]["gradient_bytes"]
    right = 2 * (size - 1) * gradients
    return grade_number(answer, right, "bytes", "N x 2 (N - 1) / N x gradient_bytes, for any batch", {
        "that grows with the batch; but workers exchange gradients, one number per parameter, not images":
            2 * right,
        "that shrinks with the batch; an epoch has fewer steps then, but each step sends as much as before": right / 2,
        "that is the number of bytes that one worker sends": right / size,
        "that is the size of the gradients; in a ring, all N workers together send 2 (N - 1) times as much": gradients,
    }, rel_tol=0.01)


def _epoch(answer, *runs: Record) -> str:
    first, *_, last = sorted(runs[0]["tables"]["wire"], key=lambda row: row["batch_size"])
    right = last["steps_per_epoch"] / first["steps_per_epoch"]
    return grade_number(answer, right, "no unit", "steps_per_epoch of the last row / of the first row", {
        "that is the factor for a step, which sends as much as before; an epoch has fewer steps": 1,
        "that is upside down: the larger batch has fewer steps, so fewer bytes per epoch": 1 / right,
        "workers do not exchange images: a step with more images sends as much as before":
            last["batch_size"] / first["batch_size"]})


def _kind(answer, *runs: Record) -> str:
    sent = {row["kind"]: row["bytes"] or 0 for row in runs[0]["tables"]["messages"] if row["kind"] != "gradients"}
    right = {kind for kind, count in sent.items() if count == max(sent.values())}
    others = dict.fromkeys(sent, "another kind has more bytes in the table `messages`")
    others["gradients"] = "they have the most bytes; which kind comes next?"
    return grade_choice(answer, right, others, "these are sent once, at the start; gradients are sent in every step")


QUESTIONS = {
    "q1": Question(newest("all-reduces of 0.1 MB or more", f"`{RUN}`", lambda run: multi_worker(run) and any(
                   row["bytes"] >= 1e5 for row in _reduced(run))), _busbw, timed=True),
    "q2": Question(_with("wire", "traffic"), _step),
    "q3": Question(_with("wire", "traffic"), _epoch),
    "q4": Question(_with("messages", "messages"), _kind),
}


def _tensors(size: int, length: int, dtype: str) -> list[list[np.ndarray]]:
    """Return `size` chunks of `length` numbers for each of `size` ranks; all sums differ."""
    return [[np.array([2.0 ** (rank + 2) * (chunk + 1) + offset for offset in range(length)], dtype)
             for chunk in range(size)] for rank in range(size)]


def _grade_ring(run: StudentFunction) -> str:
    for size, length, dtype in ((1, 1, "f4"), (2, 3, "f4"), (2, 1, "f8"), (3, 1, "f4"), (4, 5, "f4"), (5, 2, "f8")):
        tensors = _tensors(size, length, dtype)
        call = run(tensors)
        call.expect(isinstance(call.value, list | tuple) and len(call.value) == 2, "the result is (chunks, sent)")
        _expect_sums(call, tensors)
        nbytes = sum(chunk.nbytes for chunk in tensors[0])
        sent = call.numbers(call.value[1], size, "`sent` is one number of bytes per rank")
        right = 2 * (size - 1) * nbytes / size
        mistakes = {"counts numbers, not bytes": right / tensors[0][0].itemsize,
                    "counts chunks, not bytes": 2 * (size - 1), "counts bits, not bytes": 8 * right,
                    "has the bytes of all ranks together, not those of each": right * size}
        call.expect_close(sent, [right] * size, "`sent` is wrong: every rank sends one chunk in every step",
                          {f"`sent` {mistake}": [wrong] * size for mistake, wrong in mistakes.items()})
    _expect_way_round(run)
    return "on one to five ranks, all hold the sum, and each has sent 2 (N - 1) / N of its bytes, chunk by chunk"


def _expect_way_round(run: StudentFunction) -> None:
    """Raise AssertionError unless each chunk went round the ring from its own rank: rounding shows the order."""
    size = 4
    tensors = [[run.rng.normal(size=99) for _ in range(size)] for _ in range(size)]
    call = run(tensors)
    _expect_sums(call, tensors)
    first = {begin for chunk, total in enumerate(call.value[0][0]) for begin in range(size)
             if np.array_equal(total, sum(tensors[(begin + step) % size][chunk] for step in range(size)))}
    call.expect(len(first) == size, "the sums are right, but not from a ring: in each of the N - 1 steps of the "
                "reduce-scatter every rank sends another chunk, so each chunk begins its way at another rank and is "
                "added to those of the next ranks, one after another")


def _expect_sums(call: Call, tensors: list[list[np.ndarray]]) -> None:
    """Raise AssertionError unless every rank holds the sum of all ranks."""
    size, held = len(tensors), call.value[0]
    call.expect(isinstance(held, list | tuple) and len(held) == size, "`chunks` is one list of chunks per rank")
    ranks = [call.arrays(mine, tensors[0], "a rank has other numbers or shapes of chunks than before") for mine in held]
    sums = [np.sum([tensor[chunk] for tensor in tensors], axis=0) for chunk in range(size)]
    right = [[close(mine[chunk], sums[chunk]) for chunk in range(size)] for mine in ranks]
    complete = [sum(of_rank) for of_rank in right]
    call.expect(size == 1 or complete != [1] * size, "each rank has the sum of one chunk only: the other ranks still "
                                                     "need it")
    for rank, mine in enumerate(ranks):
        for chunk in range(size):
            call.expect(right[rank][chunk], f"chunk {chunk} of rank {rank} is not the sum over all ranks" + (
                ", but their mean" if close(mine[chunk] * size, sums[chunk]) else ""))


def _grade_buckets(run: StudentFunction) -> str:
    cases: tuple[tuple[list[int], int, int], ...] = (
        ([], 4, 0), ([4], 4, 1), ([4, 4], 0, 2), ([2, 2], 4, 1), ([3, 3], 4, 2), ([9], 4, 1), ([1, 9, 1], 4, 3),
        ([3, 3, 3], 5, 3), ([1, 2, 3, 4], 6, 2), ([1, 1, 1], 100, 1))
    for sizes, bucket_bytes, buckets in cases:
        alpha, beta = (0.01, 0.001) if len(sizes) < 3 else (run.real(0.01, 0.02), run.real(0.001, 0.002))
        call = run(sizes, bucket_bytes, alpha, beta)
        value = call.number("a time is a number")
        messages = (value - sum(sizes) * beta) / alpha
        call.expect(not close(value, sum(sizes) / beta + buckets * alpha) or not sizes,
                    "bytes times seconds per byte are seconds, not their quotient")
        call.expect(messages > -1e-6, "it takes less than the bytes alone would take")
        call.expect(messages < buckets + 1e-6, "more alphas are counted than messages are sent: a gradient joins the "
                                               "current bucket if it fits")
        call.expect(messages > buckets - 1e-6, "fewer alphas are counted than messages are sent: a gradient is not "
                                               "divided, and does not join a bucket in which it does not fit")
    return "one alpha for each bucket and beta for each byte, for gradients that fit, fill and exceed a bucket"


TASKS = {
    "ring": code("chunks", _grade_ring),
    "bucket_seconds": code("sizes, bucket_bytes, alpha, beta", _grade_buckets),
    "bug": bug("it never ends", 33, (
        "`and` calls the all-reduce on rank 0 alone: rank 0 waits in it, the others wait in the broadcast, and "
        "each collective needs all of them"), {
        "the workers end with different weights": "it does not come so far: look at which worker prints what last",
        "the loss explodes": "the losses that it prints are finite and fall"}, {
        22: SHARDED, 25: AVERAGED, 30: "every worker trains equally many steps, and ends this line with the others",
        34: "every worker calls this broadcast once per epoch; does one of them call something else before it?"}),
}
