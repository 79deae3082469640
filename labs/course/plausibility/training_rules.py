"""Rules about the training of a recorded run: it diverged, did not learn, or had too few images or cores."""

from __future__ import annotations

import math
from collections.abc import Iterator

from labs.course.plausibility.table import Finding, Table, finding, number, value


def not_finite(table: Table) -> Iterator[Finding | None]:
    """Find figures of a run that are NaN or infinite."""
    for row in table.rows:
        wrong = [f"{name} {figure}" for name, figure in row["measured"].items()
                 if isinstance(figure, float) and not math.isfinite(figure)]
        yield finding("not finite", f"{', '.join(wrong)}: the training diverged; a lower learning rate or a longer "
                      "warmup helps", row) if wrong else None


def batch_above_the_images(table: Table) -> Iterator[Finding | None]:
    """Find runs whose global batch is larger than the set of training images."""
    for row in table.having("global_batch_size", "images"):
        yield finding("batch above the images", f"a global batch of {number(row['global_batch_size'])} for "
                      f"{number(row['images'])} training images: an epoch is one partial step, so neither speed "
                      "nor accuracy means anything; choose a smaller --batch-size", row
                      ) if row["global_batch_size"] > row["images"] > 0 else None


def not_trained(table: Table) -> Iterator[Finding | None]:
    """Find classifiers that only guess after several epochs: loss ln k and accuracy 1/k for some k classes."""
    for row in table.rows:
        loss, accuracy = (value(row["measured"], name) for name in ("loss", "accuracy"))
        if len(row["clocks"]) > 1 and 0 < accuracy < 0.6 and math.log(2) * 0.97 < loss < 20:
            yield finding("not trained", f"accuracy {number(accuracy)} and loss {number(loss)} after "
                          f"{len(row['clocks'])} epochs are those of a guess among {round(1 / accuracy)} classes: "
                          "blank images, a wrong learning rate, or too few steps to measure more than speed", row
                          ) if 0.8 < accuracy * math.exp(loss) < 1.25 else None


def shared_cores(table: Table) -> Iterator[Finding | None]:
    """Find workers without GPUs that had less than one core each."""
    for row in table.having("local_size", "machine_cores"):
        yield finding("shared cores", f"{number(row['local_size'])} workers on a node took turns on "
                      f"{number(row['machine_cores'])} core{'s' * (row['machine_cores'] != 1)}: this is not the speed "
                      f"of {number(row['local_size'])} workers", row
                      ) if row["local_size"] > row["machine_cores"] > 0 and not row["gpus"] else None
