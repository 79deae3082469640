"""Exercises of lab 3: factor k, scaling rules, warmup, number of updates, differences beyond noise."""

import math

from labs.exercises.code_tasks import BROADCAST, SHARDED, StudentFunction, bug, close, code
from labs.exercises.grading import Question, format_value, grade_entries, grade_number, require
from labs.exercises.selecting import Record, differing_settings, missing_run, multi_worker, newest

RUN = "labs run lab03_lr_scaling --workers 2"
SEVERAL = newest("several workers", f"`{RUN}`", multi_worker)


def _k(run: Record) -> float:
    return run["layout"]["global_batch_size"] / run["config"]["base_batch_size"]


def _factor(answer, run: Record) -> str:
    size = run["layout"]["size"]
    return grade_number(answer, _k(run), "no unit", "global batch (of all workers) / base_batch_size", {
        "that is upside down": 1 / _k(run),
        "that uses the batch of one worker; a step trains on the batches of all workers": _k(run) / size,
        "that is the number of workers, which is right only if base_batch_size is the batch of one worker": size,
    }, rel_tol=1e-3)


def _learning_rates(answer, run: Record) -> str:
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


def _updates(answer, *runs: Record) -> str:
    small, large = ([run["layout"]["global_batch_size"], sum(row["steps"] for row in run["history"])] for run in runs)
    right = small[1] / large[1]
    return grade_number(answer, right, "no unit", "steps of the first / steps of the second, summed over all epochs", {
        "that is upside down": 1 / right,
        "the question is not about epochs: an epoch of the larger batch has fewer steps": 1,
        "that is the ratio of the global batches; the last step of an epoch is not full, so count the steps":
            large[0] / small[0]}, rel_tol=0.005)


def _name(run: Record) -> str:
    rule, warmup_epochs = run["config"]["scaling"], run["config"]["warmup_epochs"]
    return f"{rule}, warmup" if warmup_epochs and rule != "none" else rule


def _variants(records: list[Record]) -> list[Record]:
    """Return the newest run of each variant at one global batch."""
    may_differ = {"scaling", "warmup_epochs", "batch_size"}
    usable = [run for run in records
              if run["metrics"].get("validation_images") and "val_accuracy" in run["history"][-1]]
    for last in reversed(usable):
        variants = {_name(run): run for run in usable if differing_settings(run, last) <= may_differ and
                    run["layout"]["global_batch_size"] == last["layout"]["global_batch_size"]}
        if len(variants) > 1:
            return list(variants.values())
    raise missing_run("two rules at the same global batch", f"`{RUN} --scaling none`")


def _equally_good(answer, *runs: Record) -> str:
    scores = {_name(run): run["history"][-1]["val_accuracy"] for run in runs}
    best = max(scores, key=lambda name: scores[name])
    images = next(run for run in runs if _name(run) == best)["metrics"]["validation_images"]
    error = math.sqrt(scores[best] * (1 - scores[best]) / images)
    right = {name for name, score in scores.items() if scores[best] - score <= 3 * error}
    names = ", ".join(map(repr, scores))
    require(isinstance(answer, list | tuple | set), f"the answer is a list of names; there are: {names}")
    unknown = [name for name in answer if name not in list(scores)]
    require(not unknown, f"not one of these runs: {', '.join(map(format_value, unknown))}; there are: {names}")
    given, rule = set(answer), "within three standard errors sqrt(p (1 - p) / n) of the best validation accuracy p"
    require(best in given, "the best one is missing: which run has the highest val_accuracy in its last epoch?")
    require(given <= right, f"{', '.join(sorted(given - right))}: worse than the best by more than three "
                            f"standard errors of its accuracy on {images} validation images")
    require(given == right, f"another run is {rule}: one run of each is not enough to tell it from the best")
    return rule


QUESTIONS = {
    "q1": Question(SEVERAL, _factor),
    "q2": Question(SEVERAL, _learning_rates),
    "q3": Question(_small_and_large, _updates),
    "q4": Question(_variants, _equally_good),
}


def _grade_scaling(run: StudentFunction) -> str:
    settings = ((32, 1, 32), (16, 2, 32), (8, 4, 32), (32, 2, 32), (32, 4, 32), (64, 8, 32), (16, 1, 32))
    for batch_size, size, base_batch_size in (*settings, (run.whole(8, 64), run.whole(2, 16), 32)):
        for scaling in ("none", "linear", "sqrt"):
            call = run(0.1, batch_size, size, base_batch_size, scaling)
            value = call.number("a learning rate is a number")
            if batch_size * size == base_batch_size:
                call.expect(close(value, 0.1), "a step has exactly the images that base_lr is for, so nothing is to be "
                                               "scaled, whatever the number of workers")
            elif scaling == "none":
                call.expect(close(value, 0.1), "the rule \"none\" scales nothing")
            power = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}[scaling]
            k = batch_size * size / base_batch_size
            call.expect(close(value, 0.1 * k**power),
                        f"not the {scaling} rule: what is the global batch divided by the batch that base_lr is for?")
    run.expect_value_error(0.1, 32, 2, 32, "cubic", because="there is no such rule")
    return "the three rules, which depend on the global batch and not on the number of workers; others are refused"


def _grade_warmup(run: StudentFunction) -> str:
    climbs = ((2, 0.1, 2, 1), (4, 0.1, 4, 1), (3, 0.01, 8, 2), (4, 0.1, 1, 1), (4, 0.1, 2, 0), (4, 0.1, 3, 0.5))
    for steps, base_lr, size, epochs in (*climbs, (run.whole(3, 9), 0.1, run.whole(2, 8), run.whole(1, 3))):
        end = steps * epochs
        before = math.nan
        for step in range(int(end) + 3):
            call = run(step, steps, base_lr, size, epochs)
            value = call.number("a learning rate is a number")
            if step >= end:
                call.expect(close(value, base_lr * size), "the warmup is over: from here on the learning rate is that "
                                                          "of all workers, and stays")
            elif step == 0:
                call.expect(close(value, base_lr), "the first step has the learning rate of one worker")
            else:
                call.expect(size == 1 or value != before, "the step before has the same: the learning rate rises in "
                                                          "every step of the warmup, not once per epoch")
                call.expect(close(value, base_lr + (size - 1) * base_lr * step / end),
                            "not on the straight line from the first step to the end of the warmup")
            before = value
    return ("it begins at base_lr, rises in a straight line to base_lr * size, and stays; also for one worker, half an "
            "epoch and none")


TASKS = {
    "scaled_lr": code("base_lr, batch_size, size, base_batch_size, scaling", _grade_scaling),
    "warmup": code("step, steps_per_epoch, base_lr, size, warmup_epochs", _grade_warmup),
    "bug": bug("the loss explodes on two workers", 24, (
        "the linear rule is for a global batch that grows with the workers; here it is held, so a step has as many "
        "images as before, and needs the same learning rate"), {}, {
        22: SHARDED,
        23: "the script is to have one global batch on any number of workers, and that is what this line does",
        26: "the optimizer averages the gradients, as it should: a mean does not grow with the number of workers",
        28: BROADCAST}),
}
