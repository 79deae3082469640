"""Exercises of lab 10: a split by name, an accuracy of all workers, the choice of a network, the cost of validation."""

import itertools
import math
from collections import Counter

import numpy as np

from labs.exercises.code_tasks import AVERAGED, BROADCAST, HASH, StudentFunction, bug, close, code
from labs.exercises.grading import Question, format_value, grade_choice, grade_number
from labs.exercises.selecting import Record, images_per_sec, newest

VALIDATED = newest("a run with a validation", "`labs run lab10_caltech --workers 2`",
                   lambda run: images_per_sec(run) and all("val_accuracy" in row for row in run["history"]))


def _training_share(answer, *runs: Record) -> str:
    test, held = (runs[0]["config"][f"{name}_split"] for name in ("test", "validation"))
    return grade_number(answer, (1 - test) * (1 - held), "share", "(1 - test_split) x (1 - validation_split)", {
        "validation_split is a share of the images outside the test, not of all images": 1 - test - held,
        "that ignores the test images, which are held out as well": 1 - held}, rel_tol=0.01)


def _cost(answer, *runs: Record) -> str:
    def seconds(name: str, rows: list[dict]) -> float:
        return sum(row[name] for row in rows)

    history = runs[0]["history"]
    train, held = (seconds(name, history[1:]) for name in ("train_seconds", "val_seconds"))
    all_train, all_held = (seconds(name, history) for name in ("train_seconds", "val_seconds"))
    return grade_number(answer, held / (train + held), "share",
                  "val_seconds / (train_seconds + val_seconds), both summed over the epochs after the first", {
                      "that is val_seconds / train_seconds; the share of the whole epoch is asked for": held / train,
                      "that includes the first epoch, which also compiles the model": all_held / (all_train + all_held),
                      "that is the share of the training": train / (train + held)})


def _best(answer, *runs: Record) -> str:
    history = runs[0]["history"]

    def top(name: str, wanted=max) -> set[int]:
        value = wanted(row[name] for row in history)
        return {row["epoch"] for row in history if row[name] == value}

    others = {row["epoch"]: "another epoch has a higher val_accuracy" for row in history}
    others |= {0: "epochs count from 1"}
    others |= {epoch - 1: "another epoch has a higher val_accuracy; epochs count from 1, Python's indices from 0"
               for epoch in top("val_accuracy")}
    others |= {history[-1]["epoch"]: "the last epoch is not the best by val_accuracy"}
    others |= dict.fromkeys(top("val_loss", min), "that is the lowest val_loss; val_accuracy is asked for")
    others |= dict.fromkeys(top("accuracy"), "that is the best *training* accuracy, on images that it has learnt from")
    return grade_choice(answer, top("val_accuracy"), others,
                        "it was chosen for its validation accuracy, so that accuracy is biased upwards")


def _reportable_accuracy(answer, *runs: Record) -> str:
    return grade_choice(answer, {"test_accuracy"}, {
        "accuracy": "it is measured on augmented training images, while the weights still changed",
        "val_accuracy": "validation images were used for decisions, such as the learning rate, so it is biased upwards",
        "val_accuracy of the best epoch": "it was chosen for being highest, so it is biased upwards",
    }, "the test images decided nothing: neither the weights, nor the epoch, nor the learning rate")


QUESTIONS = {
    "q1": Question(VALIDATED, _training_share),
    "q2": Question(VALIDATED, _cost, timed=True),
    "q3": Question(VALIDATED, _best),
    "q4": Question(VALIDATED, _reportable_accuracy),
}


def _grade_subset(run: StudentFunction) -> str:
    # How far a share may be off: five standard errors of a share of the files.
    largest_error = 0.07
    files = [f"{label:03d}.class/{label:03d}_{image:04d}.jpg" for label in (1, 2) for image in range(1, 601)]
    not_a_subset = "the result is a text: training, validation or test"
    subsets = ("training", "validation", "test")
    call = run(files[0], 0.0, 0.0, 1)
    call.expect(isinstance(call.value, str) and call.value in subsets, not_a_subset)
    call.expect(call.value == "training", "with both shares 0, every image is for training")
    seed = run.whole(1, 10**6)
    calls = [run(name, 0.4, 0.5, seed) for name in files]
    again = {name: run(name, 0.4, 0.5, seed) for name in reversed(files)}
    unvalidated = [run(name, 0.4, 0.0, seed) for name in files]
    reseeded = [run(name, 0.4, 0.5, seed + 1) for name in files]
    for name, call in zip(files, calls, strict=True):
        call.expect(call.value in subsets, not_a_subset)
        again[name].expect(again[name].value == call.value, "asked again, in another order, the same name got another "
                                                            "subset: nothing but the arguments may decide")
    for call in calls[:50]:
        other = run(*call.args, second_process=True)
        other.expect(other.value == call.value,
                     f"in another process this image is {format_value(call.value)}, and {HASH}")
    counts = Counter(call.value for call in calls)
    share = {each: counts[each] / len(files) for each in subsets}
    call = calls[-1]
    call.expect(abs(share["test"] - 0.4) < largest_error, "of many names, the share in the test is not test_split")
    call.expect(abs(share["validation"] - 0.5) > largest_error,
                "over many names, validation gets validation_split of all images; it must get validation_split of "
                "those outside the test")
    call.expect(abs(share["validation"] - 0.3) < largest_error,
                "of many names outside the test, the share for validation is not validation_split")
    for call, other in zip(calls, unvalidated, strict=True):
        other.expect((call.value == "test") == (other.value == "test"),
                     "with another validation_split this name went into the test or out of it")
    differ = np.mean([call.value != other.value for call, other in zip(calls, reseeded, strict=True)])
    reseeded[-1].expect(differ > 0.3, "another seed must give another split")
    return "each share is met on average, the test does not depend on validation_split, and a name keeps its subset"


def reference_accuracy(accuracies: list[float], counts: list[int]) -> float:
    """Return the right answers of all workers over the images of all workers."""
    pairs = zip(accuracies, counts, strict=True)
    return sum(accuracy * count for accuracy, count in pairs if count) / sum(counts)


def _grade_global_accuracy(run: StudentFunction) -> str:
    shards = [([0.5], [4]), ([1.0, 0.0], [1, 3]), ([0.75, 0.5], [4, 4]), ([math.nan, 0.5], [0, 2]),
              ([0.8, 0.6, 1.0, math.nan], [10, 10, 9, 0])]
    drawn = [run.real(0, 1) for _ in range(3)], [run.whole(1, 9) for _ in range(3)]
    for accuracies, counts in (*shards, drawn):
        call, right = run(accuracies, counts), reference_accuracy(accuracies, counts)
        call.expect(not (0 in counts and isinstance(call.value, float) and math.isnan(call.value)),
                    "a worker without images must not count; nan times 0 is nan")
        call.expect_number(right, "the right answers of all workers, over the images of all workers", {
            "that is the mean over the workers; a worker with more images must count for more":
                float(np.nanmean(accuracies)),
            "that counts every worker alike, even one without images": float(np.nan_to_num(accuracies).mean())})
    return "the right answers of all workers over the images of all workers; an empty shard changes nothing"


def _grade_select(run: StudentFunction) -> str:
    networks = [([0.5], [0.4]), ([0.5, 0.75], [0.8, 0.6]), ([0.5, 0.75, 0.75], [0.3, 0.2, 0.9])]
    drawn = [[run.real(0.3, 0.9) for _ in range(4)] for _ in range(2)]
    for validation, tests in (*networks, drawn):
        for test in itertools.permutations(tests):
            call = run(validation, list(test))
            best = int(np.argmax(validation))
            index, accuracy = call.numbers(call.value, 2, "the result is an index and an accuracy")
            call.expect(index in range(len(test)), "the result is an index and an accuracy")
            call.expect(validation[int(index)] == max(validation),
                        "another network has a better validation accuracy; the test accuracies must not "
                        "influence the choice")
            call.expect(index == best, "of equally good networks the first is chosen; the test must not decide")
            call.expect(not close(accuracy, validation[best]),
                        "the network was chosen for that accuracy, so it is biased upwards")
            call.expect(close(accuracy, test[best]), "the accuracy to report is that of the chosen network, on the "
                                                     "images that decided nothing")
    return "the validation chooses, the test reports; permuting the test accuracies changes no choice"


TASKS = {
    "subset": code("name, test_split, validation_split, seed", _grade_subset),
    "global_accuracy": code("accuracies, counts", _grade_global_accuracy),
    "select": code("validation, test", _grade_select),
    "bug": bug("the test accuracy is too good", 20, (
        "each rank makes its own split, so one worker's test images are among the other's training images, and the "
        "gradients carry them into the common weights"), {
        "only the images of rank 0 are tested": "the accuracy is the mean over both workers"}, {
        22: "the worker takes every size-th of its training images, which is right if all workers have the same ones",
        26: AVERAGED, 28: BROADCAST,
        32: "the workers test equally many images, so the mean of both accuracies is that of all their images"}),
}
