"""Lab 5: bandwidth, bytes of a step and of an epoch, kinds of messages."""

from __future__ import annotations

from labs.exercises.judge import Question, Record, choice, newest, number, several

RUN = "labs run lab05_allreduce --workers 2"


def _reduced(run: Record) -> list[dict]:
    """Return the all-reduces that Horovod made in graphs."""
    library = f"Horovod over {run['layout'].get('backend')}"
    return [row for row in run.get("tables", {}).get("collectives", [])
            if row["collective"] == "allreduce" and row["library"] == library]


def _speed(records: list[Record]) -> list[Record]:
    return [newest(records, "all-reduces of 0.1 MB or more", f"`{RUN}`",
                   lambda run: several(run) and any(row["bytes"] >= 1e5 for row in _reduced(run)))]


def _with(table: str, study: str):
    source = f"`{RUN} --study {study}`"
    return lambda records: [newest(records, f"the study {study}", source, lambda run: several(run) and
                                   len(run.get("tables", {}).get(table, [])) > 1)]


def _busbw(answer, runs: list[Record]) -> str:
    (run,) = runs
    size, row = run["layout"]["size"], max(_reduced(run), key=lambda row: row["bytes"])
    algbw = row["bytes"] / row["seconds"] / 1e9
    right = algbw * 2 * (size - 1) / size
    return number(answer, right, "GB/s", "bytes / seconds x 2 (n - 1) / n / 1e9, of the largest message", {
        "that is algbw; over a link of a ring each byte goes 2 (n - 1) / n times": algbw,
        "that is the factor of an all-gather, (n - 1) / n; an all-reduce is a reduce-scatter and an all-gather":
            right / 2,
        "that is the bytes of all workers' links together": right * size,
        "that is in Gbit/s: a byte has 8 bits": 8 * right,
        "that is in MB/s": 1000 * right,
        "that is in GiB/s; 1 GB is 1e9 bytes": right * 1e9 / 2**30,
    })


def _step(answer, runs: list[Record]) -> str:
    (run,) = runs
    size, gradients = run["layout"]["size"], run["metrics"]["gradient_bytes"]
    right = 2 * (size - 1) * gradients
    return number(answer, right, "bytes", "n x 2 (n - 1) / n x gradient_bytes, whatever the batch", {
        "that grows with the batch; but what crosses are gradients, one number for each parameter, and not images":
            2 * right,
        "that shrinks with the batch; an epoch has fewer steps then, but a step sends the same": right / 2,
        "that is what one worker sends": right / size,
        "that is the gradients of one worker; in a ring, all n workers send 2 (n - 1) times as much": gradients,
        "a parameter has 4 bytes": right / 4,
    }, tolerance=0.01)


def _epoch(answer, runs: list[Record]) -> str:
    first, *_, last = sorted(runs[0]["tables"]["wire"], key=lambda row: row["batch_size"])
    right = last["steps_per_epoch"] / first["steps_per_epoch"]
    return number(answer, right, "no unit", "steps_per_epoch of the last row / of the first; a step sends the same", {
        "that is the bytes of a step, which do not change; an epoch has fewer steps": 1,
        "that is upside down: the larger batch has fewer steps, so fewer bytes per epoch": 1 / right,
        "the bytes are not those of the images: more of them in a step do not make it send more":
            last["batch_size"] / first["batch_size"],
    })


def _kind(answer, runs: list[Record]) -> str:
    sent = {row["kind"]: row["bytes"] or 0 for row in runs[0]["tables"]["messages"] if row["kind"] != "gradients"}
    right = {kind for kind, count in sent.items() if count == max(sent.values())}
    others = dict.fromkeys(sent, "another kind has more bytes in the table `messages`")
    others["gradients"] = "they are most of all; which kind comes next?"
    return choice(answer, right, others, "once, at the start; gradients cross in every step")


QUESTIONS = {
    "q1": Question("What is the bus bandwidth of this run's largest all-reduce by Horovod, from its `bytes` and "
                   "`seconds`?", "a number, in GB/s (1e9 bytes)", _speed, _busbw),
    "q2": Question("This run counted bytes on the wire. How many bytes do all its workers together send in a step, by "
                   "the formula for a ring, if the batch per worker is twice as large?", "a number of bytes",
                   _with("wire", "traffic"), _step),
    "q3": Question("From the smallest to the largest batch size of this run: by which factor do the bytes of an "
                   "*epoch* change?", "a number", _with("wire", "traffic"), _epoch),
    "q4": Question("Which kind of message, after the gradients, has sent the most bytes in this run?",
                   "a `kind` of the table `messages`", _with("messages", "messages"), _kind),
}
