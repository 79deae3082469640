"""Lab 7: bytes of an epoch, the speedup at the same global batch, and when one worker is the right answer."""

from __future__ import annotations

from labs.exercises.judge import Question, Record, against_one, choice, newest, number, several, speedup, timed

SWEEP = "`labs sweep lab07_vit --only backends`"
FREE = ("backend", "traffic")
"""One worker has nobody to send to."""


def _pair(records: list[Record]) -> list[Record]:
    return against_one(records, SWEEP, strong=True, free=FREE)


def _smallest(records: list[Record]) -> list[Record]:
    """Return the pair with the fewest parameters."""
    sized = [run for run in records if run["metrics"].get("parameters")]
    for count in sorted({run["metrics"]["parameters"] for run in sized}):
        try:
            return _pair([run for run in sized if run["metrics"]["parameters"] == count])
        except AssertionError:
            continue  # Of this size there is no pair.
    return _pair([])


def _trained(records: list[Record]) -> list[Record]:
    return [newest(records, "several workers", "`labs run lab07_vit --workers 2`",
                   lambda run: several(run) and run["metrics"].get("parameters") and run["history"])]


def _traffic(answer, runs: list[Record]) -> str:
    (run,) = runs
    size, row, config = run["layout"]["size"], run["history"][-1], run["config"]
    gradients, pixels = 4 * run["metrics"]["parameters"], row["images"] * 32 * 32 * 3
    right = 2 * (size - 1) * gradients * row["steps"] / 1e6
    return number(answer, right, "MB", "2 (n - 1) x 4 bytes x parameters x steps per epoch / 1e6", {
        "that is the bytes of one step": right / row["steps"],
        "that is the bytes of all epochs": right * config["epochs"],
        "that is what one worker sends; n of them do": right / size,
        "a parameter has 4 bytes": right / 4,
        "that is the pictures, and they cross no network: each worker reads its own": pixels * 4 / 1e6,
        "that is the pictures, and they cross no network": pixels / 1e6,
        "that is in MiB of 2^20 bytes": right * 1e6 / 2**20,
    }, tolerance=0.01)


def _winner(answer, runs: list[Record]) -> str:
    rates = {run["layout"]["size"]: timed(run) for run in runs}
    right = {size for size, rate in rates.items() if rate > 0.98 * max(rates.values())}
    others = dict.fromkeys(rates, "at the same global batch, these had fewer images_per_sec")
    others[1] = "at the same global batch, the other run had more images_per_sec"
    return choice(answer, right, others, "the exchange pays where it takes less than the arithmetic that it saves")


QUESTIONS = {
    "q1": Question("How many bytes should all workers of this run together send in one epoch, from its parameters and "
                   "steps, by the formula for a ring?", "a number, in MB (1e6 bytes)", _trained, _traffic),
    "q2": Question("These runs are of one worker and of several with the same global batch. What is the speedup?",
                   "a number", _pair, lambda answer, runs: speedup(answer, *runs)),
    "q3": Question("These are runs of the smallest network in your store that was trained by one worker and by several "
                   "at the same global batch. How many workers trained it faster?", "a number of workers",
                   _smallest, _winner),
}
