"""Questions of lab 7: bytes per epoch, strong-scaling speedup, and when one worker is faster."""

from __future__ import annotations

from labs.course.exercises.grading import (
    Question,
    Record,
    grade_choice,
    grade_number,
    grade_speedup,
    images_per_sec,
    multi_worker,
    newest,
    pair_with_one_worker,
)

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


def _traffic(answer, runs: list[Record]) -> str:
    (run,) = runs
    size, steps, images = run["layout"]["size"], run["history"][-1]["steps"], run["history"][-1]["images"]
    right = 2 * (size - 1) * 4 * run["metrics"]["parameters"] * steps / 1e6
    return grade_number(answer, right, "MB", "2 (n - 1) x 4 bytes x parameters x steps per epoch / 1e6", {
        "that is the number of bytes of one step": right / steps,
        "that is the number of bytes of all epochs": right * run["config"]["epochs"],
        "that is the number of bytes that one worker sends; all n send": right / size,
        "that is the images, which are not exchanged: each worker reads its own": images * 32 * 32 * 3 * 4 / 1e6,
    }, rel_tol=0.01)


def _winner(answer, runs: list[Record]) -> str:
    throughputs = {run["layout"]["size"]: images_per_sec(run) for run in runs}
    right = {size for size, value in throughputs.items() if value > 0.98 * max(throughputs.values())}
    others = dict.fromkeys(throughputs, "at the same global batch, these workers had fewer images_per_sec")
    others[1] = "at the same global batch, the other run had more images_per_sec"
    reason = "more workers are faster where the exchange takes less time than the arithmetic that they save"
    return grade_choice(answer, right, others, reason)


QUESTIONS = {
    "q1": Question("How many bytes should all workers of this run together send per epoch, by the formula for a ring, "
                   "given its number of parameters and steps?", "a number, in MB (1e6 bytes)",
                   newest("several workers", "`labs run lab07_vit --workers 2`", lambda run: multi_worker(run) and
                          run["metrics"].get("parameters") and run["history"]), _traffic),
    "q2": Question("These runs have the same global batch, the first with one worker, the second with several. What "
                   "is the speedup?", "a number", PAIR, grade_speedup),
    "q3": Question("These are runs of the smallest network in your results that was trained by one worker and by "
                   "several at the same global batch. How many workers trained it faster?", "a number of workers",
                   _smallest, _winner),
}
