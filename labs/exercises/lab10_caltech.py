"""Lab 10: three parts, what validation costs, and which figure may be reported."""

from __future__ import annotations

from labs.exercises.judge import Question, Record, choice, newest, number, timed

COMMAND = "`labs run lab10_caltech --workers 2`"


def _validated(records: list[Record]) -> list[Record]:
    return [newest(records, "a run with a validation", COMMAND,
                   lambda run: timed(run) and all("val_accuracy" in row for row in run["history"]))]


def _left(answer, runs: list[Record]) -> str:
    test, held = (runs[0]["config"][f"{name}_split"] for name in ("test", "validation"))
    return number(answer, (1 - test) * (1 - held), "share", "(1 - test_split) x (1 - validation_split)", {
        "validation_split is a share of what the test has left, not of all images": 1 - test - held,
        "that has two parts; the test is held out as well": 1 - held,
        "that is the validation part": (1 - test) * held,
        "that is held out for the validation and the test": 1 - (1 - test) * (1 - held),
    }, tolerance=0.01)


def _cost(answer, runs: list[Record]) -> str:
    def seconds(name: str, rows: list[dict]) -> float:
        return sum(row[name] for row in rows)

    history = runs[0]["history"]
    train, held = (seconds(name, history[1:]) for name in ("train_seconds", "val_seconds"))
    all_train, all_held = (seconds(name, history) for name in ("train_seconds", "val_seconds"))
    return number(answer, held / (train + held), "share",
                  "val_seconds / (train_seconds + val_seconds), both summed over the epochs after the first", {
                      "that is val_seconds / train_seconds; of the whole epoch is wanted": held / train,
                      "that includes the first epoch, which also compiles the model": all_held / (all_train + all_held),
                      "that is the share of the training": train / (train + held),
                      "that is the seconds of an epoch's validation": held / (len(history) - 1),
                  })


def _best(answer, runs: list[Record]) -> str:
    history = runs[0]["history"]

    def top(name: str, wanted=max) -> set[int]:
        value = wanted(row[name] for row in history)
        return {row["epoch"] for row in history if row[name] == value}

    others = {row["epoch"]: "another epoch has a higher val_accuracy" for row in history}
    others |= {0: "epochs count from 1"}
    others |= {epoch - 1: "another epoch has a higher val_accuracy; epochs count from 1, Python's places from 0"
               for epoch in top("val_accuracy")}
    others |= {history[-1]["epoch"]: "the last epoch is not the best by val_accuracy"}
    others |= dict.fromkeys(top("val_loss", min), "that is the lowest val_loss; val_accuracy is asked for")
    others |= dict.fromkeys(top("accuracy"), "that is the best *training* accuracy, on images that it has learnt from")
    return choice(answer, top("val_accuracy"), others, "chosen by the validation part, so its accuracy there flatters")


def _reported(answer, runs: list[Record]) -> str:
    return choice(answer, {"test_accuracy"}, {
        "accuracy": "it is of images that the network has learnt from, augmented, while its weights still changed",
        "val_accuracy": "the epoch was chosen because it is high there; what has decided something cannot judge it",
        "val_accuracy of the best epoch": "it was picked because it is high: the maximum of several noisy figures",
    }, "it has decided nothing: neither the weights, nor the epoch, nor the learning rate")


QUESTIONS = {
    "q1": Question("Which share of all images is left for training with this run's `test_split` and "
                   "`validation_split`?", "a share, from 0 to 1", _validated, _left),
    "q2": Question("Which share of an epoch's time is its validation in this run, the first epoch left out?",
                   "a share, from 0 to 1", _validated, _cost),
    "q3": Question("Which is the best epoch of this run by validation accuracy?", "an epoch, counted from 1",
                   _validated, _best),
    "q4": Question("The network after the last epoch goes into a report. Which figure may stand there as its accuracy?",
                   '`"accuracy"`, `"val_accuracy"`, `"val_accuracy of the best epoch"` or `"test_accuracy"`',
                   _validated, _reported),
}
