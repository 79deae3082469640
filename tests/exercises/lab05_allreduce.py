"""Made-up records of lab 5, and typical mistakes."""

from __future__ import annotations

import math

from tests.exercises.planted import IMAGES, made


def allreduce(nbytes: int, seconds: float, library: str = "Horovod over MPI") -> dict:
    return {"collective": "allreduce", "library": library, "bytes": nbytes, "seconds": seconds}


def wire(batch_size: int) -> dict:
    return {"batch_size": batch_size, "steps_per_epoch": math.ceil(IMAGES / (4 * batch_size))}


KINDS = {"gradients": 9_000_000, "checks: config, data, digests of weights": 30_000, "metrics": 40,
         "initial weights and optimizer state": 500_000, "decisions of rank 0": None}
MESSAGES = [{"kind": kind, "bytes": count} for kind, count in KINDS.items()]

RECORDS = [
    made("lab05", 4, epochs=0, tables={"collectives": [allreduce(8, 1e-4), allreduce(16_000_000, 0.02),
                                                       allreduce(16_000_000, 0.01, "raw MPI")]}),
    made("lab05", 4, epochs=0, study="traffic", metrics={"gradient_bytes": 986_728},
         tables={"wire": [wire(16), wire(32), wire(64)]}),
    made("lab05", 4, epochs=1, study="messages", tables={"messages": MESSAGES}),
]

WRONG = [
    ("q1", lambda runs, right: 0.8, "that is algbw"),
    ("q1", lambda runs, right: 8 * right, "a byte has 8 bits"),
    ("q1", lambda runs, right: right / 4, "counts numbers, not bytes"),
    ("q2", lambda runs, right: 2 * right, "grows with the batch; but workers exchange gradients"),
    ("q2", lambda runs, right: 986_728, "the size of the gradients"),
    ("q3", lambda runs, right: 1, "the factor for a step, which sends as much as before"),
    ("q3", lambda runs, right: 4, "upside down: the larger batch has fewer steps"),
    ("q4", lambda runs, right: "gradients", "which kind comes next"),
    ("q4", lambda runs, right: "checks: config, data, digests of weights", "another kind has more bytes"),
]


def ring(rounds=2, itemsize=None, average=False, next_chunk=-1):
    """Return a ring all-reduce with a mistake.

    Args:
        rounds: 1 leaves out the all-gather.
        itemsize: Bytes to count for a number.
        average: Divide the sums by the number of ranks.
        next_chunk: By how much the index of a rank's chunk grows in each step.
    """
    def run(chunks):
        size = len(chunks)
        sent = [0] * size
        for step in range(rounds * (size - 1)):
            indices = [(rank + next_chunk * step) % size for rank in range(size)]
            messages = [chunks[rank][index] for rank, index in enumerate(indices)]
            for rank, (index, message) in enumerate(zip(indices, messages, strict=True)):
                sent[rank] += message.nbytes if itemsize is None else message.size * itemsize
                receiver = chunks[(rank + 1) % size]
                receiver[index] = receiver[index] + message if step < size - 1 else message
        return [[chunk / size if average else chunk for chunk in mine] for mine in chunks], sent

    return run


def with_sent(sent):
    """Return a ring all-reduce that counts what is sent wrong."""
    return lambda chunks: (ring()(chunks)[0], sent(chunks, ring()(chunks)[1]))


def nbytes(chunks) -> int:
    return sum(chunk.nbytes for chunk in chunks[0])


def only_sums(chunks):
    """Return what a ring returns, but add without sending anything."""
    size, sums = len(chunks), [sum(of_ranks) for of_ranks in zip(*chunks, strict=True)]
    return [[total.copy() for total in sums] for _ in chunks], [2 * (size - 1) * nbytes(chunks) / size] * size


WRONG_CODE = [
    ("ring", ring(rounds=1), "the sum of one chunk only"),
    ("ring", ring(itemsize=1), "counts numbers, not bytes"),
    ("ring", ring(average=True), "is not the sum over all ranks, but their mean"),
    ("ring", ring(next_chunk=0), "is not the sum over all ranks"),
    ("ring", lambda chunks: ring()(chunks)[0], "the result is .chunks, sent"),
    ("ring", with_sent(lambda chunks, sent: [nbytes(chunks)] * len(chunks)), "the bytes of one chunk in every step"),
    ("ring", with_sent(lambda chunks, sent: [sum(sent)] * len(chunks)), "has the bytes of all ranks together"),
    ("ring", only_sums, "the sums are right, but not from a ring"),
    ("bucket_seconds", lambda sizes, bucket, alpha, beta: alpha + sum(sizes) * beta, "more alphas are counted"),
    ("bucket_seconds", lambda sizes, bucket, alpha, beta: min(1, len(sizes)) * alpha + sum(sizes) * beta,
     "fewer alphas are counted"),
    ("bucket_seconds", lambda sizes, bucket, alpha, beta: min(1, len(sizes)) * alpha + sum(sizes) / beta,
     "not their quotient"),
    ("bucket_seconds", lambda sizes, bucket, alpha, beta: -1.0, "less than the bytes alone"),
]
