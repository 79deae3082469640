"""Questions of lab 5: bus bandwidth, bytes per step and per epoch, kinds of messages."""

from __future__ import annotations

from labs.course.exercises.grading import Question, Record, Selector, grade_choice, grade_number, multi_worker, newest

RUN = "labs run lab05_allreduce --workers 2"


def _reduced(run: Record) -> list[dict]:
    """Return the measured all-reduces of Horovod in TensorFlow graphs."""
    library = f"Horovod over {run['layout'].get('backend')}"
    return [row for row in run.get("tables", {}).get("collectives", [])
            if row["collective"] == "allreduce" and row["library"] == library]


def _with(table: str, study: str) -> Selector:
    return newest(f"the study {study}", f"`{RUN} --study {study}`",
                  lambda run: multi_worker(run) and len(run.get("tables", {}).get(table, [])) > 1)


def _busbw(answer, runs: list[Record]) -> str:
    (run,) = runs
    size, row = run["layout"]["size"], max(_reduced(run), key=lambda row: row["bytes"])
    algbw = row["bytes"] / row["seconds"] / 1e9
    right = algbw * 2 * (size - 1) / size
    return grade_number(answer, right, "GB/s", "bytes / seconds x 2 (N - 1) / N / 1e9, of the largest message", {
        "that is algbw; in a ring each link carries 2 (N - 1) / N times the message": algbw,
        "that uses the factor of an all-gather, (N - 1) / N; an all-reduce is a reduce-scatter and an all-gather":
            right / 2,
    })


def _step(answer, runs: list[Record]) -> str:
    (run,) = runs
    size, gradients = run["layout"]["size"], run["metrics"]["gradient_bytes"]
    right = 2 * (size - 1) * gradients
    return grade_number(answer, right, "bytes", "N x 2 (N - 1) / N x gradient_bytes, for any batch", {
        "that grows with the batch; but workers exchange gradients, one number per parameter, not images":
            2 * right,
        "that shrinks with the batch; an epoch has fewer steps then, but each step sends as much as before": right / 2,
        "that is the number of bytes that one worker sends": right / size,
        "that is the size of the gradients; in a ring, all N workers together send 2 (N - 1) times as much": gradients,
    }, rel_tol=0.01)


def _epoch(answer, runs: list[Record]) -> str:
    first, *_, last = sorted(runs[0]["tables"]["wire"], key=lambda row: row["batch_size"])
    right = last["steps_per_epoch"] / first["steps_per_epoch"]
    return grade_number(answer, right, "no unit", "steps_per_epoch of the last row / of the first row", {
        "that is the factor for a step, which sends as much as before; an epoch has fewer steps": 1,
        "that is upside down: the larger batch has fewer steps, so fewer bytes per epoch": 1 / right,
        "workers do not exchange images: a step with more images sends as much as before":
            last["batch_size"] / first["batch_size"],
    })


def _kind(answer, runs: list[Record]) -> str:
    sent = {row["kind"]: row["bytes"] or 0 for row in runs[0]["tables"]["messages"] if row["kind"] != "gradients"}
    right = {kind for kind, count in sent.items() if count == max(sent.values())}
    others = dict.fromkeys(sent, "another kind has more bytes in the table `messages`")
    others["gradients"] = "they have the most bytes; which kind comes next?"
    return grade_choice(answer, right, others, "these are sent once, at the start; gradients are sent in every step")


QUESTIONS = {
    "q1": Question("What is the bus bandwidth of this run's largest all-reduce by Horovod, from its `bytes` and "
                   "`seconds`?", "a number, in GB/s (1e9 bytes)",
                   newest("all-reduces of 0.1 MB or more", f"`{RUN}`", lambda run: multi_worker(run) and any(
                       row["bytes"] >= 1e5 for row in _reduced(run))), _busbw),
    "q2": Question("This run counted bytes on the network. How many bytes do all its workers together send in a step, "
                   "by the formula for a ring, if the batch per worker is twice as large?", "a number of bytes",
                   _with("wire", "traffic"), _step),
    "q3": Question("From the smallest to the largest batch size of this run, by what factor do the bytes per *epoch* "
                   "change?", "a number", _with("wire", "traffic"), _epoch),
    "q4": Question("Which kind of message, after the gradients, accounts for the most bytes in this run?",
                   "a `kind` of the table `messages`", _with("messages", "messages"), _kind),
}
