"""Made-up records of lab 10, and typical mistakes."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np

from labs.exercises.lab10_caltech import reference_accuracy, reference_subset
from tests.exercises.planted import made

RECORDS = [
    made("lab10", 4, epochs=4, scores=(0.3, 0.6, 0.5, 0.4), validation_split=0.25),
]

WRONG = [
    ("q1", lambda runs, right: 1 - 0.2 - 0.25, "a share of the images outside the test"),
    ("q1", lambda runs, right: 0.75, "that ignores the test images"),
    ("q2", lambda runs, right: 1.5 / 10, "the share of the whole epoch is asked for"),
    ("q2", lambda runs, right: 6 / 53, "includes the first epoch"),
    ("q3", lambda runs, right: 1, "Python's indices from 0"),
    ("q3", lambda runs, right: 4, r"best \*?training\*? accuracy"),
    ("q4", lambda runs, right: "val_accuracy of the best epoch", "chosen for being highest"),
]


def share_of_all(name, test_split, validation_split, seed):
    point = int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest(), "big") / 2**64
    return "test" if point < test_split else "validation" if point < test_split + validation_split else "training"


def validation_first(name, test_split, validation_split, seed):
    there = {"test": "validation", "validation": "test"}
    swapped = reference_subset(name, (1 - test_split) * validation_split,
                               test_split / (1 - (1 - test_split) * validation_split), seed)
    return there.get(swapped, swapped)


CALLS = itertools.count()

WRONG_CODE = [
    ("subset", lambda *args: 2, "the result is a text"),
    ("subset", lambda *args: "test", "both shares 0"),
    ("subset", lambda name, test_split, validation_split, seed: "training", "the share in the test is not test_split"),
    ("subset", lambda name, test_split, validation_split, seed: reference_subset(
        f"{name}{next(CALLS)}", test_split, validation_split, seed), "asked again, in another order"),
    ("subset", share_of_all, "it must get validation_split of those outside"),
    ("subset", validation_first, "went into the test or out of it"),
    ("subset", lambda name, test_split, validation_split, seed: reference_subset(
        name, test_split, validation_split, 0), "another seed must give another split"),
    ("global_accuracy", lambda accuracies, counts: str(accuracies), "the result is a number"),
    ("global_accuracy", lambda accuracies, counts: float(np.mean(accuracies)), "that is the mean over the workers"),
    ("global_accuracy", lambda accuracies, counts: float(np.average(accuracies, weights=counts)),
     "a worker without images must not count"),
    ("global_accuracy", lambda accuracies, counts: reference_accuracy(accuracies, counts) if 0 not in counts else
     float(np.nan_to_num(accuracies).mean()), "even one without images"),
    ("global_accuracy", lambda accuracies, counts: sum(
        accuracy * count for accuracy, count in zip(accuracies, counts, strict=True) if count), "over the images of"),
    ("select", lambda validation, test: int(np.argmax(validation)), "the result is an index and an accuracy"),
    ("select", lambda validation, test: (int(np.argmax(test)), max(test)),
     "the test accuracies must not influence the choice"),
    ("select", lambda validation, test: (int(np.argmax(validation)), max(validation)), "chosen for that accuracy"),
    ("select", lambda validation, test: max(enumerate(test), key=lambda pair: (validation[pair[0]], pair[1])),
     "the test must not decide"),
    ("select", lambda validation, test: (int(np.argmax(validation)), max(test)), "the images that decided nothing"),
]
