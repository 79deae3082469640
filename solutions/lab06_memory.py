"""Lab 6."""

import numpy as np

from labs.results import records


def q1(runs):
    """Each parameter has a weight, a gradient and two moments of four bytes each, on every worker."""
    return 4 * 4 * runs[0]["metrics"]["parameters"] / 2**20


def q2(runs):
    """Data parallelism replicates the model and divides the batch."""
    return {"parameters": 1.0, "images": 1 / runs[0]["layout"]["size"]}


def q3(runs):
    """The slope is the memory of an image; the intercept is the memory without images."""
    trials = records.rows_of(runs, "trials").query("fits")
    slope, _ = np.polyfit(trials["batch_size"], trials["peak_mb"], 1)
    return slope


def model_bytes(parameters, optimizer):
    """A weight and a gradient for each parameter, and what the optimizer keeps."""
    kept = {"sgd": 0, "momentum": 1, "adam": 2}
    if optimizer not in kept:
        raise ValueError(f"unknown optimizer: {optimizer}")
    return 4 * (2 + kept[optimizer]) * parameters


def workers_needed(fixed, per_image, global_batch, limit):
    """What is left beside the fixed part holds `most` images; the workers' shares must not be larger."""
    most = int((limit - fixed) // per_image)
    if most < 1:
        raise ValueError("not even one image per worker fits")
    return max(1, -(-global_batch // most))


def accumulate(gradients, images):
    """A mean over all images: each micro-batch counts by its images."""
    return sum(count * np.asarray(gradient) for gradient, count in zip(gradients, images, strict=True)) / sum(images)


bug = {"symptom": "a second worker saves no memory", "line": "line 24"}
