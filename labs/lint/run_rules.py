"""Rules about runs: what was asked for and ran, what the rows compare, and times and bytes that cannot be right."""

from __future__ import annotations

import math
import operator
import re

from labs.lint.rows import SPEEDS, Row, group, near, text
from labs.lint.speedup_rules import Found
from labs.results import noise
from labs.results.ledger import ENTRIES

ACCURACIES = ("test_accuracy", "train_accuracy", "accuracy")
TRAFFIC = ("forward_bytes", "backward_bytes", "allreduce_bytes")


# What ran.

def steps_of_other_workers(rows: list[Row]) -> Found:
    """Find steps that fit another number of workers: steps x batch x workers are not the images of an epoch."""
    counted = [row for row in rows if row.steps_per_epoch * row.batch_size > 0 and row.size > 0]
    # A smaller batch counts the images better: its last step pads fewer.
    alone = {row.agree(): row for row in sorted(counted, key=lambda row: -row.batch_size) if row.size == 1}
    for row in counted:
        steps, images = row.steps_per_epoch, _images(row, alone.get(row.agree()))
        batches, last = images / row.batch_size, row.global_batch / images  # The last step may be a partial one.
        if abs(steps * row.size - batches) > max(0.02, last) * batches:
            ran = batches / steps
            whole = near(ran, max(1.0, float(f"{ran:.0f}")), 0.03)
            so = (f"so {ran:.0f} worker{'s' * (ran > 1.5)} ran" if whole else
                  "which is no whole number of workers: check the steps, the images and the batch")
            yield (f"{text(steps)} steps with {row.workers}: {text(images)} images are {text(batches)} batches of "
                   f"{text(row.batch_size)}, and {text(batches)} / {text(steps)} = {ran:.2f}, {so} "
                   f"(expected {batches / row.size:,.0f} steps)"), row


def _images(row: Row, alone: Row | None) -> float:
    """Return the images of an epoch: as stated, or those that one worker saw; NaN if a fixed number of steps ran."""
    if row.images > 0 or alone is None:
        return row.images or math.nan
    fixed = alone.steps_per_epoch == row.steps_per_epoch and not row.epochs > 0
    return math.nan if fixed else alone.steps_per_epoch * alone.batch_size


def other_layout_than_asked(rows: list[Row]) -> Found:
    """Find runs whose workers, nodes, threads or backend are not those that were asked for."""
    for row in rows:
        for what, asked, used in row.get("asked", ()):
            if str(asked).lower() != str(used).lower():
                alone = ("each process may have trained alone: start them with one `labs run`" if what == "workers"
                         else "compare the run by what ran")
                yield f"{asked} {what} asked for, {used} ran; {alone}", row


def missing_workers(rows: list[Row]) -> Found:
    """Find rows without a number of workers, in a table where other rows have one."""
    for row in rows if any("size" in row for row in rows) else ():
        if not row.size > 0 and any(row.get(name) for name in (*SPEEDS, "speedup")):
            yield "the number of workers is missing, so no speedup follows from this row: fill in `workers`", row


# What the rows compare.

def wrong_global_batch(rows: list[Row]) -> Found:
    """Find a global batch that is not batch x workers."""
    for row in rows:
        right = row.batch_size * row.size
        if row.global_batch_size > 0 and abs(row.global_batch_size - right) > 0:
            yield (f"{text(row.global_batch_size)} is not {text(row.batch_size)} x {row.workers} = {text(right)}"), row


def changed_learning_rate(rows: list[Row]) -> Found:
    """Find a learning rate that no scaling rule gives from the rows with fewer workers: two things changed."""
    most = max((row.size for row in rows if row.size > 0), default=1.0)
    for same in group((row for row in rows if row.learning_rate > 0), lambda row: row.agree("base_lr")):
        kinds = {(row.learning_rate, row.size, row.global_batch): row for row in reversed(same)}.values()
        for row in same:
            fewer = [each for each in kinds if each.size < row.size or (each.size == 1 and not row.size > 0)]
            if fewer and not any(_is_scaled(other, row, most) for other in fewer):
                other = min(fewer, key=lambda other: (other.size, other.learning_rate))
                yield (f"{text(row.learning_rate)} against {text(other.learning_rate)} in {other.place}: "
                       f"{text(row.learning_rate / other.learning_rate)} times, which no scaling rule gives for "
                       f"{row.workers}; the rows do not compare numbers of workers"), row


def _is_scaled(other: Row, row: Row, most: float) -> bool:
    """Return whether a learning rate follows from another's by a rule (none, linear, sqrt) in the global batch."""
    ratio = row.learning_rate / other.learning_rate
    known = [k for k in (row.global_batch / other.global_batch, row.size / other.size) if k > 0]
    if not known:
        return 0.98 / most <= ratio <= 1.02 * most
    return any(near(ratio, right) for right in (1.0, known[0], math.sqrt(known[0])))


def two_things_changed(rows: list[Row]) -> Found:
    """Find accuracies of rows that differ in workers and in batch per worker, in a table without learning rates."""
    shaped = [row for row in rows if any(row.get(name) for name in ACCURACIES) and row.global_batch > 0]
    for row in shaped if not any(row.learning_rate > 0 for row in rows) else ():
        others = [other for other in shaped if other.global_batch != row.global_batch]
        if row.size > 1 and others and all(row.batch != each.batch and row.size != each.size for each in others):
            first = min(shaped, key=lambda row: row.size)
            yield (f"{first.workers} of batch {text(first.batch)} against {row.workers} of batch {text(row.batch)}: "
                   f"the global batch is {text(row.global_batch / first.global_batch)} times as large; state both "
                   "learning rates, and the rule between them"), first, row


IMAGES = 10_000
"""The test images of MNIST and of CIFAR-10; the other sets of the course have fewer."""


def difference_within_noise(rows: list[Row]) -> Found:
    """Find accuracies of single runs that differ by no more than the noise of their test images.

    Applies only if the rows compare accuracies. Next to times, accuracies only show that nothing was lost.
    """
    single = [row for row in rows if 0 < row.test_accuracy < 1 and "seed" not in row]
    for same in group(single, lambda row: (row.agree(), str(row.batch), str(row.learning_rate))):
        best = max(row.test_accuracy for row in same)
        alike = [row for row in same if not noise.compare_shares(
            best, row.test_accuracy, IMAGES, comparisons=max(1, len(same) - 1)).resolved]
        timed = all(any(row.get(name) for name in (*SPEEDS, "speedup")) for row in same)
        if not timed and len({row.test_accuracy for row in alike}) > 1 and len({row.size for row in alike}) > 1:
            yield (f"{', '.join(text(row.test_accuracy) for row in alike)}: on {text(IMAGES)} test images the "
                   f"standard error of each is {noise.standard_error(best, IMAGES):.4f}, so the difference may be "
                   "chance; repeat with several seeds, and give mean and interval"), *alike


# Times.

def busy_machine(rows: list[Row]) -> Found:
    """Find runs whose times allow no conclusion."""
    yield from ((row["warning"].removeprefix("Disturbed: "), row) for row in rows if row.get("warning"))


def identical_clocks(rows: list[Row]) -> Found:
    """Find different runs with the same times to the last digit: copied, not measured."""
    for first, *others in group((row for row in rows if row.get("clocks")), lambda row: row["clocks"]):
        yield from ((f"its {len(row['clocks'])} epochs took the same times as those of {first['where']}, to the last "
                     "digit: copied, not measured", row) for row in others)
    for by in SPEEDS:
        timed = [(row[by], row) for row in rows if row.get(by) and "clocks" not in row]
        for pairs in group(timed, operator.itemgetter(0)):
            same = [row for _, row in pairs]
            figure, settings = f"{same[0][by]:.12g}", {(row.size, row.seed) for row in same}
            if len(settings) > 1 and len(figure.strip("0").replace(".", "")) > 4:  # Fewer digits agree by chance.
                yield f"{by} {figure} in {len(same)} runs, to the last digit: copied, not measured", *same


def parts_that_do_not_sum(rows: list[Row]) -> Found:
    """Find parts of an epoch whose sum is not the whole."""
    for row in (row for row in rows if not math.isnan(row.compute_seconds + row.communication_seconds)):
        whole = row.seconds_per_epoch
        parts = {part: row[f"{part}_seconds"] for part in ENTRIES if f"{part}_seconds" in row}
        missing = whole - sum(parts.values())
        if abs(missing) > 0.05 * whole > 0:
            terms = " + ".join(f"{part} {text(taken)}" for part, taken in parts.items())
            verdict = "not accounted for; show input and the rest" if missing > 0 else "too many"
            yield (f"{terms} = {text(whole - missing)} s of {text(whole)} s: {text(abs(missing))} s "
                   f"({abs(missing) / whole:.0%}) are {verdict}"), row
        elif parts.get("other", 0) < -0.15 * whole:  # Nearer 0: the error of the measurements.
            yield (f"other is {text(parts['other'])} s of {text(whole)} s: the parts were measured slower than the "
                   "whole; repeat on an idle machine"), row


# Bytes.

FASTEST = 500.0
"""GB/s that no all-reduce reaches on the links that an unnamed machine is likely to have.

Measured with nccl-tests: 370 between H100 (issue 212), 475 between eight H200 (issue 272). Newer GPUs have to be named.
"""
LINKS = (
    (r"\bG?B[23]00\b", 1000.0), (r"\bG?H[128]00\b|\bH20\b|\bMI[23]\d\d", FASTEST), (r"\bA[18]00\b", 330.0),
    (r"\bV100\b", 165.0), (r"\bP100\b", 90.0), (r"\b([TL]4|L40S?|A[34]0|A10G?|A16|[RG]TX|TITAN)\b", 64.0),
    (r"^cpu$", 100.0),
)
"""Hardware, and GB/s that its all-reduce cannot exceed: one direction of NVLink or PCIe, plus a tenth; or memory."""


def _limit(row: Row) -> tuple[float, str]:
    """Return the GB/s that a row's link can carry at most, and where that is from."""
    if row.link_gb_per_sec > 0:
        return 1.05 * row.link_gb_per_sec, f"the link has {text(row.link_gb_per_sec)}"
    for pattern, most in LINKS:
        if re.search(pattern, str(row.get("device")), re.IGNORECASE):
            return most, f"no all-reduce reaches {text(most)} on {row['device']}"
    return FASTEST, f"no all-reduce reaches {text(FASTEST)} over today's NVLink (name a newer GPU as the device)"


def bandwidth_above_the_machine(rows: list[Row]) -> Found:
    """Find bandwidths that the row's link, or any link, cannot have."""
    for row in rows:
        most, reason = _limit(row)
        if row.bandwidth_gb_per_sec > most:
            yield f"{text(row.bandwidth_gb_per_sec)} GB/s; {reason}: bits for bytes, or a step for an epoch?", row


def loader_called_communication(rows: list[Row]) -> Found:
    """Find seconds of communication in which the same bytes moved in every row, whatever its steps: the data set."""
    timed = [row for row in rows if row.size > 1 and row.bandwidth_gb_per_sec * row.communication_seconds > 0]
    moved = [1e3 * row.bandwidth_gb_per_sec * row.communication_seconds for row in timed] or [0.0]
    batches = [row.global_batch for row in timed] or [0.0]
    if near(max(moved), min(moved)) and max(batches) > 1.9 * min(batches):
        yield from ((f"{text(row.bandwidth_gb_per_sec)} GB/s x {text(row.communication_seconds)} s are "
                     f"{text(megabytes)} MB, as in every row, for any number of steps: the size of the data set; was "
                     "the data loader timed? Pair steps with and without the all-reduce; the bandwidth is gradient "
                     "bytes x steps / seconds x 2 (n - 1) / n", row)
                    for row, megabytes in zip(timed, moved, strict=True))


def bytes_by_batch(rows: list[Row]) -> Found:
    """Find bytes that fall as the batch grows: they were added up over the steps of an epoch."""
    for name in TRAFFIC:
        sent = [row for row in rows if row.get(name) and row.batch_size > 0]
        for same in group(sent, lambda row: (row.agree(), str(row.size))):
            products = [row[name] * row.batch_size for row in same]
            if len({row.batch_size for row in same}) > 1 and near(max(products), min(products), 0.1):
                yield from ((f"{name} {text(row[name])}: per step they are the same for every batch; an epoch has "
                             "fewer steps when the batch is larger (which of the two is it?)", row) for row in same)


INPUTS = {60_000 * 28 * 28: "60,000 x 28 x 28", 50_000 * 32 * 32 * 3: "50,000 x 32 x 32 x 3"}
"""Numbers of the training images of MNIST and of CIFAR-10, each of one byte or of four."""


def input_is_no_traffic(rows: list[Row]) -> Found:
    """Find bytes of the input data that were taken for bytes on the network."""
    for name in TRAFFIC:
        for row in (row for row in rows if row.get(name)):
            yield from ((f"{name} {text(row[name])} = {shape} x {each}, the input set: each worker reads it itself, "
                         "and it never crosses the network", row) for count, shape in INPUTS.items() for each in (1, 4)
                        if near(row[name], count * each, 0.0005))
