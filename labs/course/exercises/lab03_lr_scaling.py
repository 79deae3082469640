"""Questions of lab 3: factor k, learning rates of the three rules, number of updates, differences beyond noise."""

from __future__ import annotations

import math

from labs.course.exercises.grading import (
    Question,
    Record,
    differing_settings,
    grade_entries,
    grade_number,
    missing_run,
    multi_worker,
    newest,
    require,
    shown,
)

RUN = "labs run lab03_lr_scaling --workers 2"
SEVERAL = newest("several workers", f"`{RUN}`", multi_worker)


def _k(run: Record) -> float:
    return run["layout"]["global_batch_size"] / run["config"]["base_batch_size"]


def _factor(answer, runs: list[Record]) -> str:
    (run,) = runs
    size = run["layout"]["size"]
    return grade_number(answer, _k(run), "no unit", "global batch (of all workers) / base_batch_size", {
        "that is upside down": 1 / _k(run),
        "that uses the batch of one worker; a step trains on the batches of all workers": _k(run) / size,
        "that is the number of workers, which is right only if base_batch_size is the batch of one worker": size,
    }, rel_tol=1e-3)


def _learning_rates(answer, runs: list[Record]) -> str:
    (run,) = runs
    base, k, size = run["config"]["base_lr"], _k(run), run["layout"]["size"]
    rules = {"none": 1.0, "sqrt": math.sqrt(k), "linear": k}
    formulas = {"none": "base_lr", "sqrt": "base_lr x sqrt(k)", "linear": "base_lr x k"}

    def grader(rule: str):
        others = {f"that is the learning rate of the rule {other!r}": base * times for other, times in rules.items()}
        by_size = {"none": 1.0, "sqrt": math.sqrt(size), "linear": size}[rule]
        others |= {"k is global batch / base_batch_size, not the number of workers": base * by_size}
        return lambda value: grade_number(value, base * rules[rule], "learning rate", formulas[rule], others,
                                          rel_tol=0.01)

    return grade_entries(answer, {rule: grader(rule) for rule in rules})


def _small_and_large(records: list[Record]) -> list[Record]:
    """Return a run with a small global batch and the newest one with a larger, with equal epochs and images."""
    for large in reversed(records):
        smaller = [run for run in records if run["config"]["epochs"] == large["config"]["epochs"]
                   and run["history"][0]["images"] == large["history"][0]["images"]
                   and run["layout"]["global_batch_size"] < large["layout"]["global_batch_size"]]
        if smaller:
            return [min(reversed(smaller), key=lambda run: run["layout"]["global_batch_size"]), large]
    raise missing_run("two global batches with equal epochs", f"`{RUN} --batch-size 16`")


def _updates(answer, runs: list[Record]) -> str:
    small, large = ([run["layout"]["global_batch_size"], sum(row["steps"] for row in run["history"])] for run in runs)
    right = small[1] / large[1]
    return grade_number(answer, right, "no unit", "steps of the first / steps of the second, summed over all epochs", {
        "that is upside down": 1 / right,
        "the question is not about epochs: an epoch of the larger batch has fewer steps": 1,
        "that is the ratio of the global batches; the last step of an epoch is not full, so count the steps":
            large[0] / small[0],
    }, rel_tol=0.005)


def _name(run: Record) -> str:
    rule, warmup_epochs = run["config"]["scaling"], run["config"]["warmup_epochs"]
    return f"{rule}, warmup" if warmup_epochs and rule != "none" else rule


def _variants(records: list[Record]) -> list[Record]:
    """Return the newest run of each variant at one global batch."""
    may_differ = {"scaling", "warmup_epochs", "batch_size"}
    for last in reversed(records):
        variants = {_name(run): run for run in records if differing_settings(run, last) <= may_differ and
                    run["layout"]["global_batch_size"] == last["layout"]["global_batch_size"] and _validated(run)}
        if len(variants) > 1:
            return list(variants.values())
    raise missing_run("two rules at the same global batch", f"`{RUN} --scaling none`")


def _validated(run: Record) -> bool:
    return bool(run["metrics"].get("validation_images")) and "val_accuracy" in run["history"][-1]


def _equally_good(answer, runs: list[Record]) -> str:
    scores = {_name(run): run["history"][-1]["val_accuracy"] for run in runs}
    best = max(scores, key=lambda name: scores[name])
    images = next(run for run in runs if _name(run) == best)["metrics"]["validation_images"]
    error = math.sqrt(scores[best] * (1 - scores[best]) / images)
    right = {name for name, score in scores.items() if scores[best] - score <= 3 * error}
    names = ", ".join(map(repr, scores))
    require(isinstance(answer, list | tuple | set), f"the answer is a list of names; there are: {names}")
    unknown = [name for name in answer if name not in list(scores)]
    require(not unknown, f"not one of these runs: {', '.join(map(shown, unknown))}; there are: {names}")
    given, rule = set(answer), "within three standard errors sqrt(p (1 - p) / n) of the best validation accuracy p"
    require(best in given, "the best one is missing: which run has the highest val_accuracy in its last epoch?")
    require(given <= right, f"{', '.join(sorted(given - right))}: worse than the best by more than three "
                            f"standard errors of its accuracy on {images} validation images")
    require(given == right, f"another run is {rule}: one run of each is not enough to tell it from the best")
    return rule


QUESTIONS = {
    "q1": Question("By what factor `k` is the global batch of this run larger than the batch that its `base_lr` is "
                   "for?", "a number", SEVERAL, _factor),
    "q2": Question("What is this run's learning rate after the warmup by each of the three rules?",
                   '`{"none": ..., "sqrt": ..., "linear": ...}`', SEVERAL, _learning_rates),
    "q3": Question("These runs have a small and a large global batch and equally many epochs. How many times as many "
                   "updates did the first take?", "a number", _small_and_large, _updates),
    "q4": Question("These runs have the same global batch and different rules. Which of them are, by the validation "
                   "accuracy of their last epoch, within three standard errors `sqrt(p (1 - p) / n)` of the best "
                   "(`p`: the best accuracy; `n`: `record[\"metrics\"][\"validation_images\"]`)? Name the best, too.",
                   'a list of `"none"`, `"sqrt"`, `"linear"`, `"linear, warmup"`', _variants, _equally_good),
}
