"""Exercises of lab 9: speedup, runs that cannot be compared, the median pruner, McNemar's test, a test that leaks."""

import math

import numpy as np

from labs.exercises.code_tasks import BROADCAST, SHARDED, StudentFunction, bug, close, code
from labs.exercises.grading import Question, grade_choice, grade_entries, grade_number, grade_speedup
from labs.exercises.selecting import (
    Record,
    differing_settings,
    images_per_sec,
    missing_run,
    multi_worker,
    newest,
    pair_with_one_worker,
)
from labs.results import noise

NOTEBOOK = "section 'F1: the winner on two workers' of notebooks/lab09_fruits.ipynb"
MAY_DIFFER = ("scaling", "leak_check", "recompute_statistics")
"""One worker's learning rate is not scaled; the other two take effect after the training."""


def _trained(run: Record) -> float:
    """Return the throughput of a run, 0 for a search, which does not train."""
    return 0.0 if run["config"]["trials"] else images_per_sec(run)


PAIR = pair_with_one_worker(NOTEBOOK, may_differ=MAY_DIFFER, accept=_trained)


def _pair_and_outlier(records: list[Record]) -> list[Record]:
    """Return the pair and a run of one worker with another learning rate, oldest first."""
    one, many = PAIR(records)
    for run in reversed(records):
        baseline = run["layout"]["size"] == 1 and not run["config"]["trials"]
        if baseline and differing_settings(run, one) - set(MAY_DIFFER) == {"base_lr"}:
            return sorted([one, many, run], key=lambda each: each["started"])
    raise missing_run("one worker with another learning rate and otherwise the same settings",
                  "section 'F1: why 0.0005 and 0.1 are not interchangeable' of notebooks/lab09_fruits.ipynb")


def _outlier(answer, *runs: Record) -> str:
    learning_rates = [run["config"]["base_lr"] for run in runs]
    outlier = next(run["run"] for run in runs if learning_rates.count(run["config"]["base_lr"]) == 1)
    others = {run["run"]: "only its number of workers differs, which is what is compared; another run has its base_lr"
              if multi_worker(run) else "another run has the same settings on several workers, so this is its baseline"
              for run in runs}
    settings = dict.fromkeys(runs[0]["config"], "it is the same in all runs, or does not matter here")
    return grade_entries(answer, {
        "run": lambda value: grade_choice(value, {outlier}, others,
                                          "it would compare two experiments, not two numbers of workers"),
        "setting": lambda value: grade_choice(value, {"base_lr"}, settings,
                                              "no scaling rule for 1, 2 or 4 workers gives both learning rates")})


def _rest(answer, run: Record) -> str:
    times, epochs = run["timings"], len(run["history"])
    total, per_epoch = times["total_seconds"], times["seconds_per_epoch"]
    right = (epochs - 1) * per_epoch / total
    return grade_number(answer, right, "share", "(epochs - 1) x seconds_per_epoch / total_seconds", {
        "that is the share of everything else: start-up, first epoch, test": 1 - right,
        "that counts the first epoch as one of the others, but it takes longer": epochs * per_epoch / total,
        "that includes the first epoch": right + times["first_epoch_seconds"] / total}, abs_tol=0.002)


QUESTIONS = {
    "q1": Question(PAIR, grade_speedup, timed=True),
    "q2": Question(_pair_and_outlier, _outlier),
    "q3": Question(newest("several workers", "`labs run lab09_fruits --workers 2`", lambda run: multi_worker(run)
                   and _trained(run)), _rest, timed=True),
}

A, B, C, D = [0.4, 0.6, 0.7, 0.8], [0.5, 0.5, 0.6, 0.7], [0.2, 0.3, 0.8, 0.9], [0.3, 0.9, 0.6, 0.6]
PRUNED = (
    ([0.1, 0.1], [A, B], "two earlier trials are too few to stop any"),
    ([0.1], [A, B, C], "one epoch is too few to stop any"),
    ([0.1, 0.4], [A, B, C], "its best is below the median of the three at epoch 2"),
    ([0.1, 0.48], [A, B, C], "its best is below the median at epoch 2; the mean does not decide"),
    ([0.1, 0.63], [A, B, D], "its best is above the median at epoch 2; the mean does not decide"),
    ([0.5, 0.5], [A, B, C], "its best equals the median at epoch 2, so it is not below"),
    ([0.6, 0.4], [A, B, C], "its newest is below the median at epoch 2, but its best so far is not"),
    ([0.1, 0.58], [A, B, C, D], "its best is above the median at epoch 2, the mean of the two in the middle"),
    ([0.1, 0.52], [A, B, C, D], "its best is below the median at epoch 2, the mean of the two in the middle"),
    ([0.5, 0.6, 0.65], [A, B, C], "its best is below the median at epoch 3, its newest"),
    ([0.5, 0.6, 0.72], [A, B, C], "its best is above the median at epoch 3, its newest; later epochs do not count"),
)
"""Trials, the earlier ones, and what decides."""


def should_prune(values: list[float], earlier: list[list[float]]) -> bool:
    """Return what `median_prune` must return; the rule of Optuna's MedianPruner(3, n_warmup_steps=2)."""
    newest = len(values) - 1
    return newest > 0 and len(earlier) >= 3 and max(values) < np.median([other[newest] for other in earlier])


def _grade_median_prune(run: StudentFunction) -> str:
    trials = [[run.real(0, 1) for _ in range(3)] for _ in range(run.whole(3, 6))]
    drawn = [(trials[0][:epochs], trials[1:], "its best so far and the median at its newest epoch decide")
             for epochs in (2, 3)]
    for values, earlier, reason in (*PRUNED, *drawn):
        call = run(values, earlier)
        call.expect(isinstance(call.value, bool | np.bool_), "the result is a bool")
        call.expect(bool(call.value) == should_prune(values, earlier), reason)
    return ("a trial is stopped from its second epoch on, if three or more have ended and its best is below their "
            "median at its newest epoch; that is Optuna's rule")


def _grade_mcnemar(run: StudentFunction) -> str:
    # Images that only the first, only the second, both and neither of two models get right.
    cases = ((0, 0, 3, 2), (5, 0, 0, 0), (0, 5, 0, 0), (5, 0, 6, 4), (1, 3, 2, 0), (2, 2, 1, 1), (12, 4, 10, 5))
    for counts in (*cases, [run.whole(1, 12) for _ in range(4)]):
        one, other = (np.repeat(right, counts).tolist() for right in ((True, False, True, False),
                                                                      (False, True, True, False)))
        call = run(one, other)
        p, square = noise.mcnemar(one, other), (counts[0] - counts[1]) ** 2 / max(counts[0] + counts[1], 1)
        call.expect(p < 1 or close(call.number(), p), "no image favours a model, or equally many favour each: every "
                                                      "outcome of the coins is at least as uneven")
        call.expect_number(
            p, f"{counts[0]} images are right only with the first and {counts[1]} only with the second; toss one fair "
               "coin for each: p is the probability of a split at least this uneven, in either direction", {
                "that is one direction only; the other is as likely": p / 2,
                "that is the chi-square approximation, which needs many images; compute the exact probability":
                    math.erfc(math.sqrt(square / 2))})
    return ("the share of outcomes of fair coins that are at least as uneven, in both directions; images that both get "
            "right, or both wrong, change nothing")


TASKS = {
    "median_prune": code("values, earlier", _grade_median_prune),
    "mcnemar": code("one, other", _grade_mcnemar),
    "bug": bug("the test accuracy is too good", 20, (
        "the images are held out one by one, so copies of a photo are in both subsets: the test asks what the "
        "network remembers; new photos ask what it has learnt"), {
        "the workers train on the same images": "each takes every size-th of one common list"}, {
        23: SHARDED, 26: "the batch of all workers is size times as large, so the learning rate may be, too",
        28: BROADCAST,
        32: "it measures the accuracy on images that the script has held out; are they new to the network?"}),
}
