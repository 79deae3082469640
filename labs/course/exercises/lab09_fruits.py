"""Questions of lab 9: speedup of throughputs, shares of a job's time, and which run cannot be compared."""

from __future__ import annotations

from labs.course.exercises.grading import (
    Question,
    Record,
    differing_settings,
    grade_choice,
    grade_entries,
    grade_number,
    grade_speedup,
    images_per_sec,
    missing_run,
    multi_worker,
    newest,
    pair_with_one_worker,
)

NOTEBOOK = "section 'F1: the best values on several workers' of notebooks/lab09_fruits.ipynb"
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
                  "section 'Report F: 0.0005 and 0.1' of notebooks/lab09_fruits.ipynb")


def _outlier(answer, runs: list[Record]) -> str:
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
                                              "no scaling rule for 1, 2 or 4 workers gives both learning rates"),
    })


def _rest(answer, runs: list[Record]) -> str:
    (run,) = runs
    times, epochs = run["timings"], len(run["history"])
    total, per_epoch = times["total_seconds"], times["seconds_per_epoch"]
    right = (epochs - 1) * per_epoch / total
    return grade_number(answer, right, "share", "(epochs - 1) x seconds_per_epoch / total_seconds", {
        "that is the share of everything else: start-up, first epoch, test": 1 - right,
        "that counts the first epoch as one of the others, but it takes longer": epochs * per_epoch / total,
        "that includes the first epoch": right + times["first_epoch_seconds"] / total,
    }, abs_tol=0.002)


QUESTIONS = {
    "q1": Question("These runs have the same settings, the first with one worker, the second with several (except the "
                   "learning rate rule, which one worker does not need). What is the speedup?", "a number",
                   PAIR, grade_speedup),
    "q2": Question("One of these three runs does not belong in a table that compares numbers of workers. Which one, "
                   "and because of which setting?", '`{"run": its name, "setting": a name in its config}`',
                   _pair_and_outlier, _outlier),
    "q3": Question("What share of this run's `total_seconds` did the epochs after the first take? (Only these get "
                   "shorter with more workers.)", "a share, from 0 to 1",
                   newest("several workers", "`labs run lab09_fruits --workers 2`",
                          lambda run: multi_worker(run) and _trained(run)), _rest),
}
