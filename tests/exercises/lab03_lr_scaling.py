"""Made-up records of lab 3, and typical mistakes."""

from __future__ import annotations

from tests.exercises.planted import made

RECORDS = [
    made("lab03", scores=(0.3, 0.5, 0.7), batch_size=4, scaling="none", warmup_epochs=0),
    *(made("lab03", 4, scores=(0.2, 0.3, score), scaling=rule, warmup_epochs=climb,
           metrics={"validation_images": 400})
      for rule, climb, score in (("none", 0, 0.4), ("sqrt", 0, 0.64), ("linear", 0, 0.3), ("linear", 2, 0.61))),
]

WRONG = [
    ("q1", lambda runs, right: 4, "the number of workers, which is right only if"),
    ("q1", lambda runs, right: right / 4, "uses the batch of one worker"),
    ("q2", lambda runs, right: right | {"linear": 4 * right["none"]},
     "linear: .* k is global batch / base_batch_size, not the number"),
    ("q2", lambda runs, right: right | {"sqrt": right["linear"]}, "sqrt: .* the learning rate of the rule 'linear'"),
    ("q2", lambda runs, right: 0.001, r"the answer is \{'none': \.\.\., 'sqrt': .*\}, not 0\.001"),
    ("q3", lambda runs, right: 1 / right, "upside down"),
    ("q3", lambda runs, right: 1, "the question is not about epochs"),
    ("q3", lambda runs, right: 256 / 4, "the ratio of the global batches"),
    ("q4", lambda runs, right: ["sqrt"], "another run is within three standard errors"),
    ("q4", lambda runs, right: ["linear, warmup"], "the best one is missing"),
    ("q4", lambda runs, right: [*right, "none"], "none: worse than the best by more than three"),
    ("q4", lambda runs, right: ["cosine"], "not one of these runs: 'cosine'"),
]


def scaled_by(factor):
    """Return a `scaled_lr` with a wrong factor for the rules "linear" and "sqrt"."""
    def scaled_lr(base_lr, batch_size, size, base_batch_size, scaling):
        k = factor(batch_size, size, base_batch_size)
        return base_lr * {"none": 1, "linear": k, "sqrt": k**0.5}[scaling]

    return scaled_lr


def right_factor(batch_size, size, base):
    return batch_size * size / base


def rising(progress):
    """Return a `warmup` with a wrong progress from 0 to 1."""
    def warmup(step, steps_per_epoch, base_lr, size, warmup_epochs):
        end = steps_per_epoch * warmup_epochs
        share = 1 if step >= end else progress(step, end, steps_per_epoch)
        return base_lr * (1 + (size - 1) * share)

    return warmup


def from_nothing(step, steps_per_epoch, base_lr, size, warmup_epochs):
    end = steps_per_epoch * warmup_epochs
    return base_lr * size * (min(1, step / end) if end else 1)


def without_end(step, steps_per_epoch, base_lr, size, warmup_epochs):
    return base_lr * (1 + (size - 1) * step / (steps_per_epoch * warmup_epochs))


WRONG_CODE = [
    ("scaled_lr", scaled_by(lambda batch_size, size, base: size), "a step has exactly the images that base_lr is for"),
    ("scaled_lr", scaled_by(lambda batch_size, size, base: base / (batch_size * size)), "not the linear rule: what"),
    ("scaled_lr", lambda base_lr, batch_size, size, base, scaling: base_lr * batch_size * size / base,
     'the rule "none" scales nothing'),
    ("scaled_lr", lambda base_lr, batch_size, size, base, scaling: base_lr * (
        1 if scaling == "none" else batch_size * size / base), "not the sqrt rule"),
    ("scaled_lr", scaled_by(right_factor), "raised KeyError, not ValueError: there is no such rule"),
    ("warmup", from_nothing, "the first step has the learning rate of one worker"),
    ("warmup", without_end, "the warmup is over: .* and stays"),
    ("warmup", rising(lambda step, end, steps: step // steps * steps / end), "not once per epoch"),
    ("warmup", rising(lambda step, end, steps: step / (end - 1)), "not on the straight line"),
    ("warmup", lambda step, *rest: without_end(min(step, rest[0] * rest[3]), *rest), "raised ZeroDivisionError"),
]
