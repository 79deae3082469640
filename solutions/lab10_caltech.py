"""Lab 10."""

import hashlib

import numpy as np


def q1(runs):
    """The test images are held out first, then the validation images from the rest."""
    config = runs[0]["config"]
    return (1 - config["test_split"]) * (1 - config["validation_split"])


def q2(runs):
    """Leave out the first epoch, which also compiles the model."""
    train, validation = (sum(row[name] for row in runs[0]["history"][1:]) for name in ("train_seconds", "val_seconds"))
    return validation / (train + validation)


def q3(runs):
    """The history has a row per epoch, counted from 1."""
    return max(runs[0]["history"], key=lambda row: row["val_accuracy"])["epoch"]


def q4(runs):
    """Only the test images were not used for any decision."""
    return "test_accuracy"


def subset(name, test_split, validation_split, seed):
    """A point of [0, 1) from the name and the seed; the test takes its beginning, the validation what follows."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    point = int.from_bytes(digest, "big") / 2**64
    if point < test_split:
        return "test"
    return "validation" if point < test_split + (1 - test_split) * validation_split else "training"


def global_accuracy(accuracies, counts):
    """Workers without images are left out before the sums: nan times 0 is nan."""
    some = np.asarray(counts) > 0
    return np.average(np.asarray(accuracies)[some], weights=np.asarray(counts)[some])


def select(validation, test):
    """argmax returns the first of equal ones. The test is only looked up."""
    best = int(np.argmax(validation))
    return best, test[best]


bug = {"symptom": "the test accuracy is too good", "line": "line 20"}
