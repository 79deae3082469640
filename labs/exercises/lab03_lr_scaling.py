"""Lab 3: k, the rates of the three rules, updates, and what one run can tell apart."""

from __future__ import annotations

import math

from labs.exercises.judge import Question, Record, different, missing, newest, number, parts, several

RUN = "labs run lab03_lr_scaling --workers 2"


def _several(records: list[Record]) -> list[Record]:
    return [newest(records, "several workers", f"`{RUN}`", several)]


def _k(run: Record) -> float:
    return run["layout"]["global_batch_size"] / run["config"]["base_batch_size"]


def _factor(answer, runs: list[Record]) -> str:
    (run,) = runs
    size, config = run["layout"]["size"], run["config"]
    return number(answer, _k(run), "no unit", "global batch (of all workers) / base_batch_size", {
        "that is upside down": 1 / _k(run),
        "that is by the batch of one worker; a step trains on those of all": _k(run) / size,
        "that is the number of workers: right only if base_batch_size were one worker's batch": size,
        "that is the global batch itself": config["batch_size"] * size,
    }, tolerance=1e-3)


def _rates(answer, runs: list[Record]) -> str:
    (run,) = runs
    base, k, size = run["config"]["base_lr"], _k(run), run["layout"]["size"]
    rules = {"none": 1.0, "sqrt": math.sqrt(k), "linear": k}
    formulas = {"none": "base_lr", "sqrt": "base_lr x sqrt(k)", "linear": "base_lr x k"}

    def judge(rule: str):
        others = {f"that is the rate of the rule {other!r}": base * times for other, times in rules.items()}
        by_size = {"none": 1.0, "sqrt": math.sqrt(size), "linear": size}[rule]
        others |= {"k is not the number of workers, but global batch / base_batch_size": base * by_size,
                   "that is the factor; the rate is base_lr times it": rules[rule]}
        return lambda value: number(value, base * rules[rule], "learning rate", formulas[rule], others, tolerance=0.01)

    return parts(answer, {rule: judge(rule) for rule in rules})


def _small_and_large(records: list[Record]) -> list[Record]:
    """Return a run with a small global batch and the newest one with a larger, of equal epochs and images."""
    for large in reversed(records):
        alike = [run for run in records if run["config"]["epochs"] == large["config"]["epochs"]
                 and run["history"][0]["images"] == large["history"][0]["images"]
                 and run["layout"]["global_batch_size"] < large["layout"]["global_batch_size"]]
        if alike:
            return [min(reversed(alike), key=lambda run: run["layout"]["global_batch_size"]), large]
    raise missing("two global batches with equal epochs", f"`{RUN} --batch-size 16`")


def _updates(answer, runs: list[Record]) -> str:
    small, large = ([run["layout"]["global_batch_size"], sum(row["steps"] for row in run["history"])] for run in runs)
    right = small[1] / large[1]
    return number(answer, right, "no unit", "steps of the first / steps of the second, summed over all epochs", {
        "that is upside down": 1 / right,
        "they have equal epochs, and that is not what is asked: an epoch of the larger batch has fewer steps": 1,
        "that is the quotient of the global batches; the last step of an epoch is not full, so count the steps":
            large[0] / small[0],
    }, tolerance=0.005)


def _name(run: Record) -> str:
    rule, climb = run["config"]["scaling"], run["config"]["warmup_epochs"]
    return f"{rule}, warmup" if climb and rule != "none" else rule


def _variants(records: list[Record]) -> list[Record]:
    """Return the newest run of each variant at one global batch."""
    free = {"scaling", "warmup_epochs", "batch_size"}
    for last in reversed(records):
        found = {_name(run): run for run in records if different(run, last) <= free and
                 run["layout"]["global_batch_size"] == last["layout"]["global_batch_size"] and _judged(run)}
        if len(found) > 1:
            return list(found.values())
    raise missing("two rules at the same global batch", f"`{RUN} --scaling none`")


def _judged(run: Record) -> bool:
    return bool(run["metrics"].get("validation_images")) and "val_accuracy" in run["history"][-1]


def _level(answer, runs: list[Record]) -> str:
    scores = {_name(run): run["history"][-1]["val_accuracy"] for run in runs}
    best = max(scores, key=lambda name: scores[name])
    images = next(run for run in runs if _name(run) == best)["metrics"]["validation_images"]
    error = math.sqrt(scores[best] * (1 - scores[best]) / images)
    right = {name for name, score in scores.items() if scores[best] - score <= 3 * error}
    names = ", ".join(map(repr, scores))
    assert isinstance(answer, list | tuple | set), f"the answer is a list of names; there are: {names}"
    unknown = [name for name in answer if name not in list(scores)]
    assert not unknown, f"none of these runs: {', '.join(map(str, unknown))}; there are: {names}"
    given, rule = set(answer), "within three standard errors sqrt(p (1 - p) / n) of the best validation accuracy p"
    assert best in given, "the best of all is missing: which run has the highest val_accuracy in its last epoch?"
    assert given <= right, (f"{', '.join(sorted(given - right))}: worse than the best by more than three of its "
                            f"standard errors, with {images} validation images")
    assert given == right, f"another run is {rule}: one run each does not tell it from the best"
    return rule


QUESTIONS = {
    "q1": Question("By which factor `k` is the batch of a step of this run larger than the one that its `base_lr` "
                   "suits?", "a number", _several, _factor),
    "q2": Question("Which learning rate has this run after its warmup by each of the three rules?",
                   '`{"none": ..., "sqrt": ..., "linear": ...}`', _several, _rates),
    "q3": Question("These runs have a small and a large global batch and equal epochs. How many times as many updates "
                   "has the first taken?", "a number", _small_and_large, _updates),
    "q4": Question("These runs have one global batch, each another rule. Which of them does their last validation "
                   "accuracy not tell apart from the best, that is, which lie within three standard errors of it? Name "
                   "the best, too.", 'a list of `"none"`, `"sqrt"`, `"linear"`, `"linear, warmup"`', _variants, _level),
}
