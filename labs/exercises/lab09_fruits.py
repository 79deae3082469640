"""Lab 9: a speedup is of rates, what is in a job's seconds, and which run cannot be compared."""

from __future__ import annotations

from labs.exercises.judge import (
    Question,
    Record,
    against_one,
    choice,
    different,
    missing,
    newest,
    number,
    parts,
    several,
    speedup,
    timed,
)

NOTEBOOK = "section 'F1: the best values on several workers' of notebooks/lab09_fruits.ipynb"
FREE = ("scaling", "leak_check", "recompute_statistics")
"""One worker's learning rate is not scaled; the other two come after the training."""


def _trainings(records: list[Record]) -> list[Record]:
    """Leave out the records of searches, which train nothing themselves."""
    return [run for run in records if not run["config"]["trials"]]


def _pair(records: list[Record]) -> list[Record]:
    return against_one(_trainings(records), NOTEBOOK, free=FREE)


def _odd(records: list[Record]) -> list[Record]:
    """Return the pair, and one worker with another learning rate, oldest first."""
    one, many = _pair(records)
    for run in reversed(_trainings(records)):
        if run["layout"]["size"] == 1 and different(run, one) - set(FREE) == {"base_lr"}:
            return sorted([one, many, run], key=lambda each: each["started"])
    raise missing("one worker with another learning rate, and all else as it was",
                  "section 'Report F: 0.0005 and 0.1' of notebooks/lab09_fruits.ipynb")


def _outsider(answer, runs: list[Record]) -> str:
    rates = [run["config"]["base_lr"] for run in runs]
    out = next(run["run"] for run in runs if rates.count(run["config"]["base_lr"]) == 1)
    others = {run["run"]: "its workers are what is compared: they may differ, and its base_lr is that of another run"
              if several(run) else "another run has the same settings on several workers, so this is its base"
              for run in runs}
    settings = dict.fromkeys(runs[0]["config"], "it is the same in all of them, or changes nothing here")
    return parts(answer, {
        "run": lambda value: choice(value, {out}, others, "it compares two experiments, not two numbers of workers"),
        "setting": lambda value: choice(value, {"base_lr"}, settings, "no rule for 1, 2 or 4 workers gives both rates"),
    })


def _rest(answer, runs: list[Record]) -> str:
    (run,) = runs
    times, epochs = run["timings"], len(run["history"])
    total, each = times["total_seconds"], times["seconds_per_epoch"]
    right = (epochs - 1) * each / total
    return number(answer, right, "share", "(epochs - 1) x seconds_per_epoch / total_seconds", {
        "that is the share of everything else: start, first epoch, test": 1 - right,
        "seconds_per_epoch leaves the first epoch out, which takes longer than the others": epochs * each / total,
        "that includes the first epoch": right + times["first_epoch_seconds"] / total,
        "that is one epoch": each / total,
        "that is in seconds": right * total,
    }, slack=0.002)


QUESTIONS = {
    "q1": Question("These are a run of one worker and one of several with the same settings (but for the rule of the "
                   "learning rate, which one worker does not need). What is the speedup?", "a number",
                   _pair, lambda answer, runs: speedup(answer, *runs)),
    "q2": Question("One of these three runs must not stand in a table about numbers of workers. Which, and because of "
                   "which setting?", '`{"run": its name, "setting": a name in its config}`', _odd, _outsider),
    "q3": Question("Which share of this run's `total_seconds` did the epochs after the first take? (Only they become "
                   "shorter with more workers.)", "a share, from 0 to 1",
                   lambda records: [newest(_trainings(records), "several workers",
                                           "`labs run lab09_fruits --workers 2`",
                                           lambda run: several(run) and timed(run))], _rest),
}
