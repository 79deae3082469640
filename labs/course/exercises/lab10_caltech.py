"""Questions of lab 10: three subsets, the cost of validation, and which accuracy to report."""

from __future__ import annotations

from labs.course.exercises.grading import Question, Record, grade_choice, grade_number, images_per_sec, newest

VALIDATED = newest("a run with a validation", "`labs run lab10_caltech --workers 2`",
                   lambda run: images_per_sec(run) and all("val_accuracy" in row for row in run["history"]))


def _left(answer, runs: list[Record]) -> str:
    test, held = (runs[0]["config"][f"{name}_split"] for name in ("test", "validation"))
    return grade_number(answer, (1 - test) * (1 - held), "share", "(1 - test_split) x (1 - validation_split)", {
        "validation_split is a share of the images outside the test, not of all images": 1 - test - held,
        "that ignores the test images, which are held out as well": 1 - held,
    }, rel_tol=0.01)


def _cost(answer, runs: list[Record]) -> str:
    def seconds(name: str, rows: list[dict]) -> float:
        return sum(row[name] for row in rows)

    history = runs[0]["history"]
    train, held = (seconds(name, history[1:]) for name in ("train_seconds", "val_seconds"))
    all_train, all_held = (seconds(name, history) for name in ("train_seconds", "val_seconds"))
    return grade_number(answer, held / (train + held), "share",
                  "val_seconds / (train_seconds + val_seconds), both summed over the epochs after the first", {
                      "that is val_seconds / train_seconds; the share of the whole epoch is asked for": held / train,
                      "that includes the first epoch, which also compiles the model": all_held / (all_train + all_held),
                      "that is the share of the training": train / (train + held),
                  })


def _best(answer, runs: list[Record]) -> str:
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


def _reported(answer, runs: list[Record]) -> str:
    return grade_choice(answer, {"test_accuracy"}, {
        "accuracy": "it is measured on augmented training images, while the weights still changed",
        "val_accuracy": "validation images were used for decisions, such as the learning rate, so it is biased upwards",
        "val_accuracy of the best epoch": "it was chosen for being highest, so it is biased upwards",
    }, "the test images decided nothing: neither the weights, nor the epoch, nor the learning rate")


QUESTIONS = {
    "q1": Question("What share of all images is left for training with this run's `test_split` and "
                   "`validation_split`?", "a share, from 0 to 1", VALIDATED, _left),
    "q2": Question("What share of an epoch's time is validation in this run, without the first epoch?",
                   "a share, from 0 to 1", VALIDATED, _cost),
    "q3": Question("Which epoch of this run has the best validation accuracy?", "an epoch, counted from 1",
                   VALIDATED, _best),
    "q4": Question("A report describes the network after the last epoch. Which figure may it give as its accuracy?",
                   '`"accuracy"`, `"val_accuracy"`, `"val_accuracy of the best epoch"` or `"test_accuracy"`',
                   VALIDATED, _reported),
}
