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
